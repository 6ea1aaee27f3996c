"""Answers for a partition of documents, as one Parquet file that appears whole or not at all.

    id            string    what the document calls itself, or null
    source, row   string, int64   the file it stands in, and its place there from 0: by these answers join documents
    mentions      list of
        start, end            int32    characters of the text, end exclusive
        surface               string   what stands there
        title, page_id, url   string, int64, string   the entity; null where there is none
        wikidata              string   its Wikidata id, such as Q64; null where there is none
        probability, prior    float    of the entity; null where there is none
        reason                string   why there is none
        none_probability      float    how likely it is that none of the candidates is meant
        candidates            list of title, page_id, url, wikidata, probability, prior, local, coherence, score,
                              source   (--top)
        attended              list of word, weight       (--explain)
        support               list of mention, weight    (--explain); `mention` is a place in this list
    error         string    why the document was not linked, as `kind: message`; null where it was

The file's metadata tell version, model, linker and knowledge base, and count what is in it. The same answers make the
same bytes.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.batch.documents import DocumentError
from deeped_ray.predictions import mention_fields, mention_row
from deeped_ray.storage.location import Location
from deeped_ray.types import Prediction

_COUNTS = b"deeped_ray.counts"
_ROW_GROUP = 2048


@dataclass
class Counts:
    """What is in one file of answers, or in many."""

    documents: int = 0
    mentions: int = 0
    linked: int = 0
    characters: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """By kind."""

    def add(self, other: "Counts") -> None:
        for name in ("documents", "mentions", "linked", "characters"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, number in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + number

    @property
    def num_errors(self) -> int:
        return sum(self.errors.values())


@dataclass(frozen=True)
class Answered:
    """What becomes of one document."""

    row: int
    name: str | None
    num_characters: int
    outcome: Sequence[Prediction] | DocumentError


def mentions_type(*, top: int, explain: bool) -> pa.DataType:
    """Of the column `mentions`."""
    return pa.list_(pa.struct(mention_fields(with_candidates=bool(top), explain=explain)))


def schema_of(*, top: int, explain: bool, metadata: Mapping[str, str]) -> pa.Schema:
    columns = {
        "id": pa.string(),
        "source": pa.string(),
        "row": pa.int64(),
        "mentions": mentions_type(top=top, explain=explain),
        "error": pa.string(),
    }
    return pa.schema(list(columns.items()), {f"deeped_ray.{name}": value for name, value in metadata.items()})


class AnswerWriter:
    """Takes documents in the order of their rows."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, source: Location, *, top: int) -> None:
        self.counts = Counts()
        self._writer, self._schema, self._source, self._top = writer, schema, str(source), top
        self._rows: list[dict[str, Any]] = []

    def add(self, document: Answered) -> None:
        outcome, counts = document.outcome, self.counts
        counts.documents += 1
        if isinstance(outcome, DocumentError):
            counts.errors[outcome.kind] = counts.errors.get(outcome.kind, 0) + 1
        else:
            counts.characters += document.num_characters
            counts.mentions += len(outcome)
            counts.linked += sum(each.entity is not None for each in outcome)
        place = {"id": document.name, "source": self._source, "row": document.row}
        self._rows.append(place | row_of(outcome, top=self._top))
        if len(self._rows) == _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()


@contextmanager
def writing_answers(file: Location, schema: pa.Schema, source: Location, *, top: int) -> Iterator[AnswerWriter]:
    """The file is there, safely on disk, once the block has ended without an exception."""
    with file.writing() as path:
        with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
            writer = AnswerWriter(parquet, schema, source, top=top)
            yield writer
            writer.flush()
            parquet.add_key_value_metadata({_COUNTS: json.dumps(asdict(writer.counts), sort_keys=True)})
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())


def read_counts(file: Location, expected: Mapping[str, str]) -> Counts | None:
    """What a file that was written whole counts; None for any other, and for one of another run."""
    try:
        found = file.reading(pq.read_metadata).metadata
        if all(found[f"deeped_ray.{name}".encode()] == value.encode() for name, value in expected.items()):
            return Counts(**json.loads(found[_COUNTS]))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
    return None


def row_of(outcome: Sequence[Prediction] | DocumentError, *, top: int) -> dict[str, Any]:
    """The columns `mentions` and `error` of one document."""
    if isinstance(outcome, DocumentError):
        return {"mentions": [], "error": str(outcome).encode(errors="backslashreplace").decode()}
    return {"mentions": [mention_row(each, top=top) for each in outcome], "error": None}
