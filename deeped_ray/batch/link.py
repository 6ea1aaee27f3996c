"""Links a corpus of any size on Ray: documents in Parquet or JSON lines in, answers in Parquet out, by partition.

    OUTPUT/part-000000.parquet   answers of one partition, always whole (see `answers`)
    OUTPUT/_run.json             what the answers depend on: inputs, settings, parts of the knowledge base
    OUTPUT/_partitions.json      how the inputs are split
    OUTPUT/_summary.json         counts and speed, once all partitions are done
    OUTPUT/_SUCCESS              empty; written last, when the run has succeeded
    OUTPUT/.trying-000000-...    which document is being linked, once a worker has died in that partition

Partitions and the batches in them depend on the inputs alone. So the bytes are the same however many workers there are,
and whatever was killed and resumed. If a worker dies, its partition is linked again, one document at a time. A document
that kills its worker twice is left out, and its row holds the error.
"""

import functools
import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

import torch

from deeped_ray import __version__
from deeped_ray.batch.answers import Answered, AnswerWriter, Counts, read_counts, schema_of, writing_answers
from deeped_ray.batch.documents import (
    ROWS_AT_ONCE,
    DocumentError,
    Partition,
    Row,
    Text,
    inspect_files,
    line_blocks,
    line_cuts,
    name_of,
    partitions_of,
    read_rows,
    text_of,
)
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.running import tasks
from deeped_ray.running.config import FLAG
from deeped_ray.storage.lease import sole_writer
from deeped_ray.storage.location import Location, find_files
from deeped_ray.types import DeepEdError, Document, LinkerKind, Prediction

logger = logging.getLogger(__name__)
# a character of JSON takes up to 12 bytes, as \ud83d\ude00 does; spans come on top
_BYTES_PER_CHARACTER, _BYTES_BESIDE = 12, 2**20
_MAX_BLAMED = 10
"""Documents of a partition that may kill their workers; with more, nothing of it is linked."""
_MAX_CRASHES = 4
"""Times that workers may die over a partition without a document to blame."""


@dataclass(frozen=True, kw_only=True)
class CorpusLinkingConfig:
    """What to link, and what to write."""

    input: Annotated[
        tuple[str, ...],
        "documents as Parquet or JSON lines; repeatable. A file, folder or glob, on disk or s3://...; may be compressed.",
        FLAG,
    ] = ()
    output: Annotated[str | None, "folder for the answers: a path, s3://, gs:// or hdfs://", FLAG] = None
    model: Annotated[LinkerKind, "which linker", FLAG] = "global"
    threshold: Annotated[float, "below this probability, a mention gets no entity", FLAG] = 0.0
    top: Annotated[int, "candidates to write per mention", FLAG] = 0
    explain: Annotated[bool, "write attended words and supporting mentions", FLAG] = False
    resembling: Annotated[
        bool, "local and global: for a name that is not known, try entities whose names resemble it"
    ] = True
    max_characters: Annotated[int, "a document with a longer text is not linked; its row holds an error"] = 1_000_000
    max_error_share: Annotated[float, "if a larger share of documents has errors, the job fails at its end"] = 1.0
    partition_documents: Annotated[int, "documents per task and answer file, at most"] = 10_000

    def __post_init__(self) -> None:
        if not (0 <= self.threshold <= 1 and 0 <= self.max_error_share <= 1):
            raise DeepEdError("`threshold` and `max_error_share` must lie between 0 and 1.")
        if self.top < 0 or min(self.max_characters, self.partition_documents) < 1:
            raise DeepEdError("`top` must be at least 0, `max_characters` and `partition_documents` at least 1.")

    def recorded(self) -> dict[str, Any]:
        """What the answers depend on, beside the inputs."""
        without = ("input", "output", "max_error_share")
        return {name: value for name, value in asdict(self).items() if name not in without}


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


def link_corpus(kb: KnowledgeBase, config: CorpusLinkingConfig, detection: DetectionConfig) -> dict[str, Any]:
    """Link what is not linked yet; returns counts and speed."""
    if not config.input or not config.output:
        raise DeepEdError("Give --input and --output.")
    output = Location(config.output)
    for option, location in [("--output", output), *(("--input", Location(pattern)) for pattern in config.input)]:
        _refuse_working_dir(option, location)
    files = _find_inputs(config.input, output)
    output.make_folder()
    with sole_writer(output) as still_mine:
        job = _start(kb, config, detection, output, files)
        summary = _link_partitions(job, _partitions(job, files))
        still_mine()
        return _finish(job, summary)


# -- what is to be done


def _refuse_working_dir(option: str, location: Location) -> None:
    if location.path is not None and "working_dir_files" in (*location.path.parts, *location.path.resolve().parts):
        raise DeepEdError(
            f"{option} {location} lies in the job's temporary working directory. Give it as an absolute path."
        )


def _find_inputs(patterns: Sequence[str], output: Location) -> list[Location]:
    """Files in the order given, without what other jobs leave beside their results, and without our own."""
    found: list[Location] = []
    for pattern in patterns:
        files = [file for file in find_files(pattern) if not file.name.startswith(("_", "."))]
        files = [file for file in files if not file.address.startswith(f"{output.address}/")]
        if not files:
            raise DeepEdError(f"Cannot read {pattern}: there are no such files.")
        found += files
    return list(dict.fromkeys(found))


def _start(
    kb: KnowledgeBase, config: CorpusLinkingConfig, detection: DetectionConfig, output: Location, files: list[Location]
) -> Job:
    """Take up the run that is there, if it is the same; else begin one, if there is none."""
    part_ids = _part_ids(kb, config)
    with ThreadPoolExecutor(16) as pool:
        inputs = list(pool.map(fingerprint, files))
    run = {
        "deeped_ray": __version__,
        "knowledge_base": dict(part_ids),
        "options": {**config.recorded(), **asdict(detection)},
        "inputs": {str(file): print_ for file, print_ in zip(files, inputs, strict=True)},
    }
    metadata = {
        "version": __version__,
        "model": config.model,
        "knowledge_base": dict(part_ids)["corpus"],
        **({"linker": dict(part_ids)["linker"]} if config.model != "prior" else {}),
        "run": hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16],
    }
    file = output / "_run.json"
    if file.exists():
        _refuse_another_run(output, file.read_json(), json.loads(json.dumps(run)))
    elif output.sizes():
        raise DeepEdError(f"{output} is not empty, and was not made by jobs/link_corpus.py. Give another --output.")
    else:
        file.write_json(run)
    _remove_leftovers(output)
    return Job(kb.location, part_ids, config, detection, output, metadata)


def _remove_leftovers(output: Location) -> None:
    """What a killed run, or its last tasks, left half-written."""
    for name in output.children():
        if name.startswith((".part-", ".trying-")):
            (output / name).remove()


def _part_ids(kb: KnowledgeBase, config: CorpusLinkingConfig) -> tuple[tuple[str, str], ...]:
    """Of all parts that a linker reads: opened, so that one that is missing or stale is told now."""
    names = ["corpus"] if config.model == "prior" else ["corpus", "words", "vectors", "linker"]
    if config.model != "prior" and config.resembling and "index" in kb:
        names.append("index")
    return tuple((name, kb.open(name).id) for name in names)


def _refuse_another_run(output: Location, found: dict[str, Any], expected: dict[str, Any]) -> None:
    differing = [
        f"{group} {name}" if isinstance(expected[group], dict) else group
        for group in expected
        for name in _differing(found.get(group), expected[group])
    ]
    if differing:
        shown = ", ".join(differing[:5]) + (f" and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise DeepEdError(
            f"{output} holds answers of another run, which differs in: {shown}."
            " Give another --output, or the same inputs, options and knowledge base; or remove that folder."
        )


def _differing(found: Any, expected: Any) -> list[str]:
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return [] if found == expected else [""]
    return [name for name in {**expected, **found} if found.get(name) != expected.get(name)]


def _partitions(job: Job, files: list[Location]) -> list[Partition]:
    """As they were cut when the run began."""
    kept = job.output / "_partitions.json"
    if kept.exists():
        return [Partition(number, files[row[0]], *row[1:]) for number, row in enumerate(kept.read_json()["partitions"])]
    infos = inspect_files(files)
    blocks = [
        block
        for file, info in zip(files, infos, strict=True)
        if info.kind == "lines"
        for block in line_blocks(file, info)
    ]
    most = job.config.partition_documents
    cuts = dict(zip(blocks, tasks.run("cut", line_cuts, blocks, most, unit="blocks of lines").results, strict=True))
    partitions = partitions_of(files, infos, cuts, most=most)
    places = {file: place for place, file in enumerate(files)}
    rows = [[places[each.file], each.kind, each.first_row, each.num_rows, each.start, each.end] for each in partitions]
    kept.write_json({"columns": ["input", *(each.name for each in fields(Partition)[2:])], "partitions": rows})
    return partitions


# -- on the driver


def _link_partitions(job: Job, partitions: list[Partition]) -> dict[str, Any]:
    new, given_up = Counts(), 0
    start = time.monotonic()

    def note(attempt: Attempt, counts: Counts) -> str:
        nonlocal given_up
        new.add(counts)
        given_up += attempt.is_given_up
        return f"{new.mentions:,} mentions, {new.num_errors:,} errors"

    is_known = all(partition.num_rows is not None for partition in partitions)
    outcome = tasks.run(
        "link",
        link_partition,
        [Attempt(partition) for partition in partitions],
        job,
        earlier=lambda attempt: _earlier(job, attempt.partition),
        unit="documents" if is_known else "partitions",
        size=lambda attempt: (attempt.partition.num_rows or 0) if is_known else 1,
        note=note,
        after_crash=lambda attempt, why: _after_crash(job, attempt, why, new),
    )
    seconds, is_new = time.monotonic() - start, outcome.num_skipped < len(partitions)
    total = Counts()
    for counts in outcome.results:
        total.add(counts)
    speeds = ("documents", "mentions", "characters")
    return {
        **asdict(total),
        "errors": dict(sorted(total.errors.items())),
        "partitions": len(partitions),
        "skipped_partitions": outcome.num_skipped,
        "given_up_partitions": given_up,
        **({f"{name}_per_s": round(getattr(new, name) / seconds, 1) for name in speeds} if is_new else {}),
        **({"peak_worker_gib": round(outcome.peak_gib, 2)} if is_new else {}),
    }


def _earlier(job: Job, partition: Partition) -> Counts | None:
    counts = read_counts(job.file(partition), job.metadata)
    if counts is None:  # from here on not everything is there
        (job.output / "_SUCCESS").remove()
    return counts


def _after_crash(job: Job, attempt: Attempt, why: str, finished: Counts) -> Attempt:
    """What to do with a partition over which a worker has died: by itself, by a neighbour's hunger, or by a document."""
    file, crashes = job.mark(attempt.partition), attempt.crashes + 1
    row = file.read_json()["row"] if file.exists() else None
    logger.warning("a worker died over %s, at row %s: %s", job.file(attempt.partition).name, row, why)
    if row is None and crashes >= _MAX_CRASHES and not finished.documents:
        raise DeepEdError(
            f"Workers die before they link anything: {why} Give them more memory, or fewer CPUs per node to share it."
        )
    is_guilty = row is not None and row == attempt.suspect
    blamed = (*attempt.blamed, row) if is_guilty and row is not None else attempt.blamed
    is_given_up = len(blamed) > _MAX_BLAMED or crashes - 2 * len(blamed) > _MAX_CRASHES
    return replace(attempt, crashes=crashes, suspect=row, blamed=blamed, is_given_up=is_given_up)


def _finish(job: Job, summary: dict[str, Any]) -> dict[str, Any]:
    _remove_leftovers(job.output)
    file, success = job.output / "_summary.json", job.output / "_SUCCESS"
    if success.exists() and file.exists():  # nothing was left to do: what it took stays on record
        summary = {**file.read_json(), "skipped_partitions": summary["skipped_partitions"]}
    else:
        file.write_bytes(json.dumps(summary, indent=2).encode())
    num_errors, share = sum(summary["errors"].values()), job.config.max_error_share
    if num_errors > share * summary["documents"]:
        success.remove()
        raise DeepEdError(
            f"{num_errors:,} of {summary['documents']:,} documents have errors, more than --max-error-share {share:g}:"
            f" {summary['errors']}. All answers are in {job.output}; there is no _SUCCESS."
        )
    success.write_bytes(b"")
    return {**summary, "output": str(job.output)}


# -- on the workers


def link_partition(attempt: Attempt, job: Job) -> Counts:
    """Task: one file of answers; returns what is in it."""
    partition, config = attempt.partition, job.config
    torch.set_num_threads(1)  # a task has one CPU
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
    linker = _open_linker(job.kb, job.part_ids, job.config.model, job.config.resembling, job.detection)
    max_line_bytes = _BYTES_PER_CHARACTER * job.config.max_characters + _BYTES_BESIDE
    for rows in _chunks(read_rows(attempt.partition, max_line_bytes=max_line_bytes)):
        texts = [_text(row, job.config, attempt.blamed) for row in rows]
        if attempt.crashes:
            for row, text in zip(rows, texts, strict=True):
                job.mark(attempt.partition).write_json({"row": row.number})
                _answers(linker, [text], job.config)
            job.mark(attempt.partition).remove()
        for row, text, outcome in zip(rows, texts, _answers(linker, texts, job.config), strict=True):
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


def _text(row: Row, config: CorpusLinkingConfig, blamed: Sequence[int]) -> Text | DocumentError:
    if row.number in blamed:
        return DocumentError("crashed", "the worker that linked this document died, twice")
    try:
        return text_of(row.content, max_characters=config.max_characters)
    except DocumentError as error:
        return error


Outcome = list[Prediction] | DocumentError


def _answers(linker: Linker, texts: Sequence[Text | DocumentError], config: CorpusLinkingConfig) -> list[Outcome]:
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
        return [[each.at_least(config.threshold) for each in predictions] for predictions in answers]
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
def _open_linker(
    kb: Location,
    part_ids: tuple[tuple[str, str], ...],
    model: LinkerKind,
    resembling: bool,
    detection: DetectionConfig,
) -> Linker:
    """Once per process; what it maps, the processes of a node share."""
    opened = KnowledgeBase(kb)
    linker = Linker.open(opened, model, resembling=resembling, detection=detection)
    # what is opened when it is first asked for, else a storage that fails would look like a document's fault
    _ = linker.detector
    if linker.model is not None:
        _ = linker.inputs.words, linker.inputs.entity_vectors
    parts = opened.manifest()["parts"]
    changed = [name for name, part_id in part_ids if parts.get(name, {}).get("id") != part_id]
    if changed:
        raise DeepEdError(
            f"The {', '.join(changed)} part of {opened} changed while the corpus was linked. Begin again, with another --output."
        )
    return linker
