"""Documents by the million, in Parquet or JSON lines: cut into partitions, and read row by row.

    {"id": "d1", "text": "Scotland beat Australia.", "spans": [[0, 8], [14, 23]]}

`id` (or `name`) and `spans` (or `mentions`) may be missing; a span is [start, end] or has keys `start` and `end`. Parquet
has columns of these names, and is cut into runs of rows; plain JSON lines are cut into runs of lines, within blocks of
bytes; what is compressed with gzip or bzip2 cannot be cut. So partitions depend on the files alone, and no more than a
block is ever in memory. What is no document is told as such, in its place.
"""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from deeped_ray.linking.detection import Span
from deeped_ray.storage.arrow import open_parquet
from deeped_ray.storage.compressed import READ_ERRORS, compression, first_bytes, first_content
from deeped_ray.storage.location import Location, StorageError
from deeped_ray.types import DeepEdError, check_spans

LINE_BLOCK_BYTES = 32 * 2**20
READ_BYTES = 2**22
ROWS_AT_ONCE = 128
COLUMNS = ("id", "name", "text", "spans", "mentions")
FileKind = Literal["parquet", "lines", "compressed"]
_DAMAGE = (pa.ArrowException, *READ_ERRORS)
_EXPECTED = "Parquet with a column `text`, or JSON lines with a key `text`, plain or compressed with gzip or bzip2"


class DocumentError(Exception):
    """Why a document is not linked; `kind` is what such cases are counted by."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Row(NamedTuple):
    """One row as it was read; `number` counts from 0 within its file, blank lines included."""

    number: int
    content: Mapping[str, Any] | DocumentError


class Text(NamedTuple):
    """A document to link; without spans its mentions are to be found."""

    text: str
    spans: list[Span] | None


@dataclass(frozen=True)
class Partition:
    """Rows of a file that one task links; `start` and `end` are the bytes of a run of lines."""

    number: int
    file: Location
    kind: FileKind
    first_row: int = 0
    num_rows: int | None = None
    """None if it is not known before all is read."""
    start: int = 0
    end: int = 0


# -- cutting


class FileInfo(NamedTuple):
    kind: FileKind
    num_rows: int
    """Of Parquet, else 0."""
    num_bytes: int


def inspect_files(files: Sequence[Location]) -> list[FileInfo]:
    """What the files are; raises for the first that cannot hold documents, before any work is done."""
    with ThreadPoolExecutor(16) as pool:  # thousands of small requests, where files lie far away
        return list(pool.map(_inspect, files))


def _inspect(file: Location) -> FileInfo:
    size = file.num_bytes()
    if first_bytes(file, 4) == b"PAR1":
        return FileInfo("parquet", _check_parquet(file), size)
    try:
        head = first_content(file, 2**16) if size else b""
    except READ_ERRORS as error:
        raise DeepEdError(f"Cannot read {file}: {error}.") from error
    # one bad line is reported in its place, but a file of nothing else is no mistake of its documents
    if head.strip() and not any(
        line.lstrip().startswith(b"{") for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    ):
        raise DeepEdError(f"{file} begins with {head[:20]!r}. Expected {_EXPECTED}.")
    return FileInfo("compressed" if size and compression(file) else "lines", 0, size)


def _check_parquet(file: Location) -> int:
    with _parquet(file) as table:
        types = {field.name: field.type for field in table.schema_arrow}
        text = types.get("text")
        if text is not None and pa.types.is_dictionary(text):
            text = text.value_type
        if text is None or not (pa.types.is_string(text) or pa.types.is_large_string(text)):
            found = f"a column `text` of type {text}" if text is not None else f"columns {', '.join(types)}"
            raise DeepEdError(f"{file} has {found}. Expected {_EXPECTED}.")
        return int(table.metadata.num_rows)


def line_blocks(file: Location, info: FileInfo) -> list[tuple[Location, int, int]]:
    """Blocks of bytes of a file of lines."""
    borders = [*range(0, info.num_bytes, LINE_BLOCK_BYTES), info.num_bytes]
    return [(file, start, end) for start, end in itertools.pairwise(borders)]


def line_cuts(block: tuple[Location, int, int], most: int) -> tuple[list[int], int]:
    """Where runs of about equally many lines begin, `most` at most in each, and the number of lines.

    Of the lines that begin within the block; a run at its end may reach beyond it.
    """
    file, start, end = block
    found = [np.array([0])] if start == 0 else []
    for position in range(max(start - 1, 0), end - 1, READ_BYTES):
        content = file.read_bytes(position, min(position + READ_BYTES, end - 1))
        found.append(np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + position + 1)
    starts = np.concatenate(found)
    runs = -(-len(starts) // most)
    step = -(-len(starts) // max(runs, 1))
    return starts[::step].tolist() if runs else [], len(starts)


def partitions_of(
    files: Sequence[Location],
    infos: Sequence[FileInfo],
    cuts: Mapping[tuple[Location, int, int], tuple[list[int], int]],
    *,
    most: int,
) -> list[Partition]:
    """All partitions, numbered in the order of files and rows; `cuts` are those of all blocks of lines."""
    found: list[tuple[Location, FileKind, int, int | None, int, int]] = []
    for file, info in zip(files, infos, strict=True):
        if info.kind == "parquet":
            borders = [*range(0, info.num_rows, most), info.num_rows]
            found += [(file, info.kind, low, high - low, 0, 0) for low, high in itertools.pairwise(borders)]
        elif info.kind == "compressed":
            found.append((file, info.kind, 0, None, 0, info.num_bytes))
        else:
            found += _runs_of_lines(file, info, [cuts[block] for block in line_blocks(file, info)])
    return [Partition(number, *fields) for number, fields in enumerate(found)]


def _runs_of_lines(
    file: Location, info: FileInfo, cuts: Iterable[tuple[list[int], int]]
) -> Iterator[tuple[Location, FileKind, int, int | None, int, int]]:
    runs, row = [], 0
    for starts, num_lines in cuts:
        step = -(-num_lines // max(len(starts), 1))
        runs += [(row + i * step, min(step, num_lines - i * step), start) for i, start in enumerate(starts)]
        row += num_lines
    ends = [*(start for _, _, start in runs[1:]), info.num_bytes]
    for (first, count, start), end in zip(runs, ends, strict=False):  # an empty file has an end, but no run
        yield file, info.kind, first, count, start, end


# -- reading


def read_rows(partition: Partition, *, max_line_bytes: int) -> Iterator[Row]:
    """The rows of a partition, in order; blank lines are left out. What is damaged ends it, told in its last row."""
    if partition.kind == "parquet":
        yield from _read_parquet(partition)
        return
    blocks = _blocks(partition) if partition.kind == "lines" else _decompressed(partition)
    number = partition.first_row
    for line in _lines(blocks, longest=max_line_bytes):
        if isinstance(line, DocumentError):
            yield Row(number, line)
        elif line.strip():
            yield Row(number, _parsed(line, max_line_bytes, is_first=number == 0))
        number += 1


def _blocks(partition: Partition) -> Iterator[bytes]:
    for start in range(partition.start, partition.end, READ_BYTES):
        yield partition.file.read_bytes(start, min(start + READ_BYTES, partition.end))


def _decompressed(partition: Partition) -> Iterator[bytes | DocumentError]:
    opened = gzip.open if compression(partition.file) == "gz" else bz2.open
    try:
        with _source(partition.file) as raw, opened(raw) as content:
            while block := content.read1(READ_BYTES):
                yield block
    except (OSError, EOFError, zlib.error) as error:
        yield DocumentError("unreadable", f"the file is damaged here, and not read on: {error}")


def _lines(blocks: Iterable[bytes | DocumentError], *, longest: int) -> Iterator[bytes | DocumentError]:
    """Lines without their ends; of one that is too long no more than shows it."""
    line = bytearray()
    for block in blocks:
        if isinstance(block, DocumentError):
            yield block
            return
        *ended, rest = block.split(b"\n")
        for piece in ended:
            yield bytes(line + piece)[: longest + 1]
            line.clear()
        line += rest[: max(longest + 1 - len(line), 0)]
    if line:
        yield bytes(line)


def _parsed(line: bytes, longest: int, *, is_first: bool) -> Mapping[str, Any] | DocumentError:
    if len(line) > longest:
        return DocumentError("too_long", f"the line has more than {longest:,} bytes")
    try:
        content = json.loads(line.removeprefix(b"\xef\xbb\xbf" if is_first else b"").decode())
    except (ValueError, RecursionError) as error:
        return DocumentError("not_json", f"{error}; the line begins with {line[:40]!r}")
    if not isinstance(content, dict):
        return DocumentError("not_json", f"expected an object, found {line[:40]!r}")
    return content


def _read_parquet(partition: Partition) -> Iterator[Row]:
    """Rows of the groups that the partition overlaps, a few at a time."""
    assert partition.num_rows is not None
    number, end = partition.first_row, partition.first_row + partition.num_rows
    try:
        with _parquet(partition.file) as table:
            sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            borders = [0, *itertools.accumulate(sizes)]
            groups = [g for g in range(len(sizes)) if borders[g] < end and borders[g + 1] > number]
            columns = [name for name in table.schema_arrow.names if name in COLUMNS]
            position = borders[groups[0]]
            for batch in table.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns, use_threads=False):
                wanted = batch.slice(
                    max(number - position, 0), max(min(end - position, len(batch)) - max(number - position, 0), 0)
                )
                position += len(batch)
                for content in contents_of(wanted):
                    yield Row(number, content)
                    number += 1
                if number >= end:
                    return
    except StorageError:
        raise
    except (*_DAMAGE, DeepEdError) as error:
        for row in range(number, end):
            yield Row(row, DocumentError("unreadable", f"the file is damaged at row {number} or later: {error}"))


def contents_of(batch: pa.RecordBatch) -> list[Mapping[str, Any] | DocumentError]:
    """The rows; only those that are no text are errors."""
    try:
        found: list[Mapping[str, Any] | DocumentError] = batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            return [DocumentError("bad_text", f"not UTF-8: {error}")]
        return [content for i in range(len(batch)) for content in contents_of(batch.slice(i, 1))]
    return found


@contextlib.contextmanager
def _parquet(file: Location) -> Iterator[Any]:
    """With a buffer, since row groups may be larger than memory."""
    with _source(file) as source:
        try:
            table = open_parquet(source, buffer_size=READ_BYTES, pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise DeepEdError(f"Cannot read {file}: {error}.") from error
        with table:
            yield table


def _source(file: Location) -> io.BufferedIOBase:
    return open(file.path, "rb") if file.path is not None else io.BufferedReader(_Remote(file), READ_BYTES)


class _Remote(io.RawIOBase):
    """A file that lies elsewhere, read in pieces, each of which is tried again: nodes keep no copy of a corpus."""

    def __init__(self, file: Location) -> None:
        self._file, self._position, self._size = file, 0, file.num_bytes()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        content = self._file.read_bytes(self._position, end) if end > self._position else b""
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


# -- from rows to documents


def name_of(content: Mapping[str, Any] | DocumentError) -> str | None:
    """What the document calls itself."""
    if isinstance(content, DocumentError):
        return None
    found = next((content[key] for key in ("id", "name") if content.get(key) is not None), None)
    # an answer must be writable, whatever the name
    return None if found is None else str(found).encode(errors="backslashreplace").decode()


def text_of(content: Mapping[str, Any] | DocumentError, *, max_characters: int) -> Text:
    """The document of a row; raises DocumentError."""
    if isinstance(content, DocumentError):
        raise content
    text = content.get("text")
    if text is None:
        raise DocumentError("no_text", f"found {', '.join(map(repr, list(content)[:5])) or 'nothing'}, but no text")
    if not isinstance(text, str):
        raise DocumentError("bad_text", f"the text is no string but {type(text).__name__}")
    if len(text) > max_characters:
        raise DocumentError(
            "too_long", f"the text has {len(text):,} characters, more than --max-characters {max_characters:,}"
        )
    if "\0" in text:
        raise DocumentError("bad_text", f"a null character at {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError("bad_text", f"half of a surrogate pair at {error.start}") from error
    return Text(text, _spans(content, text))


def _spans(content: Mapping[str, Any], text: str) -> list[Span] | None:
    found = next((content[key] for key in ("spans", "mentions") if content.get(key) is not None), None)
    if found is None:
        return None
    if not isinstance(found, list):
        raise DocumentError("bad_spans", f"expected a list, found {type(found).__name__}")
    spans = [_span(span) for span in found]
    try:
        check_spans(text, spans)
    except DeepEdError as error:
        raise DocumentError("bad_spans", str(error)) from error
    return spans


def _span(span: Any) -> Span:
    ends = (span.get("start"), span.get("end")) if isinstance(span, dict) else span
    if isinstance(ends, (list, tuple)) and len(ends) == 2 and all(type(end) is int for end in ends):
        return ends[0], ends[1]
    raise DocumentError("bad_spans", f"expected [start, end] or start and end, found {str(span)[:60]}")
