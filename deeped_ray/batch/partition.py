"""One partition of documents, linked by one task: what a worker of `link` does."""

import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeped_ray.batch.answers import Answered, AnswerWriter, Counts, schema_of, writing_answers
from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.documents import ROWS_AT_ONCE, DocumentError, Partition, Row, Text, name_of, read_rows, text_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.answers import Answers
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document, LinkerKind

# a character of JSON takes up to 12 bytes, as \ud83d\ude00 does; spans come on top
_BYTES_PER_CHARACTER, _BYTES_BESIDE = 12, 2**20


@dataclass(frozen=True)
class Job:
    """What all tasks share."""

    kb: Location
    part_ids: tuple[tuple[str, str], ...]
    config: CorpusLinkingConfig
    detection: DetectionConfig
    output: Location
    metadata: dict[str, str]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells this driver's tasks from those that a killed one has left: their marks must blame no document of ours."""

    def file(self, partition: Partition) -> Location:
        return self.output / f"part-{partition.number:06d}.parquet"

    def mark(self, partition: Partition) -> Location:
        return self.output / f".trying-{partition.number:06d}-{self.token}.json"


@dataclass(frozen=True)
class Attempt:
    """A partition, and what is known of the workers that died over it."""

    partition: Partition
    crashes: int = 0
    suspect: int | None = None
    """Row at which the last worker died."""
    blamed: tuple[int, ...] = ()
    is_given_up: bool = False


def link_partition(attempt: Attempt, job: Job) -> Counts:
    """Task: one file of answers; returns what is in it."""
    partition, config = attempt.partition, job.config
    schema = schema_of(top=config.top, explain=config.explain, metadata=job.metadata)
    if attempt.crashes:
        job.mark(partition).remove()
    with writing_answers(job.file(partition), schema, partition.file, top=config.top) as writer:
        if attempt.is_given_up:
            _give_up(partition, writer)
        else:
            _link_rows(attempt, job, writer)
    return writer.counts


def _link_rows(attempt: Attempt, job: Job, writer: AnswerWriter) -> None:
    linker = open_linker(job.kb, job.part_ids, job.config.model, job.detection)
    max_line_bytes = _BYTES_PER_CHARACTER * job.config.max_characters + _BYTES_BESIDE
    for rows in _chunks(read_rows(attempt.partition, max_line_bytes=max_line_bytes)):
        texts = [_text(row, job.config.max_characters, attempt.blamed) for row in rows]
        if attempt.crashes:
            for row, text in zip(rows, texts, strict=True):
                job.mark(attempt.partition).write_json({"row": row.number})
                answers_of(linker, [text], job.config)
            job.mark(attempt.partition).remove()
        for row, text, outcome in zip(rows, texts, answers_of(linker, texts, job.config), strict=True):
            size = 0 if isinstance(text, DocumentError) else len(text.text)
            writer.add(Answered(row.number, name_of(row.content), size, outcome))


def _give_up(partition: Partition, writer: AnswerWriter) -> None:
    """Not even the input is read: that, too, may be what workers die of."""
    error = DocumentError("crashed", "workers died over this partition again and again, so nothing of it was linked")
    for row in range(partition.first_row, partition.first_row + (partition.num_rows or 1)):
        writer.add(Answered(row, None, 0, error))


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Documents that go to the linker together; these too depend on the input alone."""
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _text(row: Row, max_characters: int, blamed: Sequence[int]) -> Text | DocumentError:
    if row.number in blamed:
        return DocumentError("crashed", "the worker that linked this document died, twice")
    return text_or_error(row.content, max_characters)


def text_or_error(content: Mapping[str, Any] | DocumentError, max_characters: int) -> Text | DocumentError:
    try:
        return text_of(content, max_characters=max_characters)
    except DocumentError as error:
        return error


Outcome = Answers | DocumentError


def answers_of(linker: Linker, texts: Sequence[Text | DocumentError], config: CorpusLinkingConfig) -> list[Outcome]:
    """Answers, or errors, in the order of the texts."""
    found: list[Document | DocumentError] = [_document(linker, text) for text in texts]
    documents = [each for each in found if isinstance(each, Document)]
    answers = iter(_link(linker, documents, config))
    return [each if isinstance(each, DocumentError) else next(answers) for each in found]


def _document(linker: Linker, text: Text | DocumentError) -> Document | DocumentError:
    if isinstance(text, DocumentError):
        return text
    try:
        return linker.document(*text)
    except Exception as error:
        return _failure(error)


def _link(linker: Linker, documents: Sequence[Document], config: CorpusLinkingConfig) -> list[Outcome]:
    try:
        answers = linker.link_batch(documents, explain=config.explain)
        return [found.at_least(config.threshold, top=config.top) for found in answers]
    except Exception as error:
        failure = _failure(error)
        if len(documents) == 1:
            return [failure]
        return [outcome for document in documents for outcome in _link(linker, [document], config)]


def _failure(error: Exception) -> DocumentError:
    """A document's own fault; one of the knowledge base or the storage ends the job."""
    if isinstance(error, (DeepEdError, OSError)):
        raise error
    return DocumentError("not_linked", f"{type(error).__name__}: {error}")


@functools.lru_cache(maxsize=1)
def open_linker(
    kb: Location,
    part_ids: tuple[tuple[str, str], ...],
    model: LinkerKind,
    detection: DetectionConfig,
) -> Linker:
    """Once per process; what it maps, the processes of a node share."""
    opened = KnowledgeBase(kb)
    linker = Linker.open(opened, model, detection=detection)
    # what is opened when it is first asked for, else a storage that fails would look like a document's fault
    _ = linker.detector
    if linker.model is not None:
        linker.inputs.open_all()
    parts = opened.manifest()["parts"]
    changed = [name for name, part_id in part_ids if parts.get(name, {}).get("id") != part_id]
    if changed:
        raise DeepEdError(
            f"The {', '.join(changed)} part of {opened} changed while the corpus was linked. Begin again, with another --output."
        )
    return linker
