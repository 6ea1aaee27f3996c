"""Mention-entity counts from outside the dump, for p(e|m): `KIND:FILE`, plain or compressed with gzip or bzip2.

    counts:FILE         a table `mention, title, count`: TSV, with or without a header, or Parquet with these columns
    deep-ed:FILE        deep-ed's p_e_m text: `mention TAB total TAB page id,count[,title] TAB ...`
    crosswikis:FILE     Spitkovsky and Chang's dictionary: `mention TAB probability title ... W:3/7 w:12/90 ...`
    yago:FILE           AIDA's means: `"mention" TAB entity`, without counts, so that every candidate is equally likely

Plain text and Parquet are cut into shards that are read in parallel; a compressed file is one shard.
"""

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from deeped_ray.corpus.config import LOT
from deeped_ray.corpus.pages import Ids
from deeped_ray.corpus.titles import Names
from deeped_ray.storage.arrow import NotPlainError, open_parquet
from deeped_ray.storage.compressed import READ_ERRORS, compression, first_bytes, open_decompressed
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_mention, normalize_title
from deeped_ray.types import DeepEdError

COUNTS = ("prior_counts", "prior_counts_without_entity", "unreadable_prior_lines")
"""What is counted of the lines of a source."""
_CROSSWIKIS_COUNT = re.compile(r"\b(?:W|Wx|w|w'):(\d+)/\d+")
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


class NamedCount(NamedTuple):
    """`title` may be empty where a source gives only page ids, `page_id` is -1 where it gives only titles."""

    mention: str
    title: str
    page_id: int
    support: float


@dataclass(frozen=True)
class PriorSource:
    kind: str
    path: Location

    @classmethod
    def open(cls, spec: str) -> "PriorSource":
        """The source of `KIND:FILE`; fails before any work if the file is missing or begins unlike its kind."""
        kind, _, name = spec.partition(":")
        if kind not in _KINDS or not name:
            raise DeepEdError(f"Cannot read priors {spec!r}. Expected {', '.join(f'{kind}:FILE' for kind in _KINDS)}.")
        source = cls(kind, Location(name))
        source._check()
        return source

    @property
    def is_uniform(self) -> bool:
        return self.kind == "yago"

    def _check(self) -> None:
        if _is_parquet(self.path):
            _parquet(self.path)
            return
        first = next(read_lines(SourceShard(self, 0, 1)), "")
        if not _is_header(first) and parse_line(self.kind, first) is None:
            _, expected = _KINDS[self.kind]
            raise DeepEdError(f"{self.path} is no {self.kind} file: expected {expected}, found {first[:60]!r}.")


@dataclass(frozen=True)
class SourceShard:
    """Bytes [start, end) of a text file, a row group of a Parquet file, or (end -1) a whole compressed file."""

    source: PriorSource
    start: int
    end: int

    @property
    def label(self) -> str:
        """What logs call it."""
        return f"{self.source.path.name} {self.start}-{self.end}"


def cut_sources(sources: Sequence[PriorSource], *, shard_bytes: int) -> list[tuple[int, int, SourceShard]]:
    """All shards, each with the number of its source, from 1, and its place there; 0 are the links of the dump itself."""
    return [
        (number, place, shard)
        for number, source in enumerate(sources, start=1)
        for place, shard in enumerate(cut_source(source, shard_bytes=shard_bytes))
    ]


def cut_source(source: PriorSource, *, shard_bytes: int) -> list[SourceShard]:
    if _is_parquet(source.path):
        return [SourceShard(source, group, group + 1) for group in range(_parquet(source.path).num_row_groups)]
    if compression(source.path):
        return [SourceShard(source, 0, -1)]
    size = source.path.num_bytes()
    borders = [*range(0, max(size, 1), shard_bytes), size]
    return [SourceShard(source, start, end) for start, end in itertools.pairwise(borders)]


def read_shard(shard: SourceShard) -> Iterator[NamedCount | None]:
    """The counts of a shard; None for a line that cannot be read."""
    if _is_parquet(shard.source.path):
        yield from _read_row_group(shard)
        return
    for number, line in enumerate(read_lines(shard)):
        if number == 0 and shard.start == 0 and _is_header(line):
            continue
        found = parse_line(shard.source.kind, line)
        if found is None:
            yield None
        else:
            yield from found


def count_lots(
    shard: SourceShard, names: Names, page_ids: Ids, total: Counter[str]
) -> Iterator[dict[tuple[str, int], float]]:
    """(mention, entity) -> count, by the lot; `total` counts what was read. `page_ids` are those of entities 0, 1, ..."""
    find = functools.cache(names.find)
    counts: defaultdict[tuple[str, int], float] = defaultdict(float)
    for found in read_shard(shard):
        if found is None:
            total["unreadable_prior_lines"] += 1
            continue
        entity = find(found.title) if found.title else None
        if entity is None:  # articles are numbered by page id
            place = int(np.searchsorted(page_ids, found.page_id))
            entity = place if place < len(page_ids) and page_ids[place] == found.page_id else None
        total["prior_counts_without_entity" if entity is None else "prior_counts"] += 1
        if entity is not None:
            counts[found.mention, entity] += found.support
        if len(counts) >= LOT:
            yield counts
            counts.clear()
    if counts:
        yield counts


def read_lines(shard: SourceShard) -> Iterator[str]:
    """The lines that begin within the shard."""
    path = shard.source.path
    try:
        with open_decompressed(path) as handle:
            if shard.start > 0:
                handle.seek(shard.start - 1)
                handle.readline()  # the rest of a line that began in the shard before
            while (shard.end < 0 or handle.tell() < shard.end) and (line := handle.readline()):
                if line.strip():
                    yield line.decode("utf-8", "replace").rstrip("\r\n")
    except READ_ERRORS as error:
        raise DeepEdError(f"Cannot read {path}: {error}.") from error


def parse_line(kind: str, line: str) -> list[NamedCount] | None:
    """The counts on a line of a text file; None if it is not of that kind."""
    cells = line.split("\t")
    mention = normalize_mention(cells[0])
    read, _ = _KINDS[kind]
    try:
        return [found for found in read(mention, cells[1:]) if mention and found.support > 0]
    except (ValueError, IndexError):
        return None


# -- one reader per kind: the cells after the mention


def _read_counts(mention: str, cells: list[str]) -> list[NamedCount]:
    title, count = cells
    return [NamedCount(mention, normalize_title(title), -1, float(count))]


def _read_deep_ed(mention: str, cells: list[str]) -> list[NamedCount]:
    total = float(cells[0])
    found = []
    for cell in filter(None, cells[1:]):
        page_id, number, *title = cell.split(",", 2)
        # its merged file has probabilities where the others have counts
        count = float(number) * total if "." in number else float(number)
        found.append(NamedCount(mention, normalize_title("".join(title)), int(page_id), count))
    return [] if "wikipedia" in mention.lower() else found


def _read_crosswikis(mention: str, cells: list[str]) -> list[NamedCount]:
    probability, title, *flags = cells[0].split(" ")
    float(probability)
    count = sum(int(number) for number in _CROSSWIKIS_COUNT.findall(" ".join(flags)))
    return [] if "wikipedia" in mention.lower() else [NamedCount(mention, normalize_title(title), -1, count)]


def _read_yago(mention: str, cells: list[str]) -> list[NamedCount]:
    (entity,) = cells
    if not (len(mention) > 1 and mention[0] == mention[-1] == '"'):
        raise ValueError("a mention in quotes")
    surface, title = (_UNICODE_ESCAPE.sub(lambda code: chr(int(code[1], 16)), text) for text in (mention[1:-1], entity))
    return [NamedCount(normalize_mention(surface), normalize_title(title), -1, 1)]


_KINDS: dict[str, tuple[Callable[[str, list[str]], list[NamedCount]], str]] = {
    "counts": (_read_counts, "mention TAB title TAB count"),
    "deep-ed": (_read_deep_ed, "mention TAB total TAB page id,count,title TAB ..."),
    "crosswikis": (_read_crosswikis, "mention TAB probability title W:count/total ..."),
    "yago": (_read_yago, '"mention" TAB entity'),
}
"""Reader of a line, and what the line looks like."""


# -- files


def _is_header(line: str) -> bool:
    return [cell.strip().lower() for cell in line.split("\t")] == ["mention", "title", "count"]


def _read_row_group(shard: SourceShard) -> Iterator[NamedCount | None]:
    table = _parquet(shard.source.path).read_row_group(shard.start, columns=["mention", "title", "count"])
    for batch in table.to_batches(max_chunksize=2**16):
        for mention, title, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if mention and title and count is not None and count > 0:
                yield NamedCount(normalize_mention(mention), normalize_title(title), -1, float(count))
            else:
                yield None


def _parquet(path: Location) -> Any:
    try:
        file = open_parquet(path.local())
    except (OSError, pa.ArrowException) as error:
        raise DeepEdError(f"Cannot read {path}: {error}.") from error
    except NotPlainError as error:
        raise DeepEdError(f"Cannot read {path}: {error}") from error
    missing = {"mention", "title", "count"} - set(file.schema_arrow.names)
    if missing:
        raise DeepEdError(f"{path} has columns {', '.join(file.schema_arrow.names)}; expected mention, title, count.")
    return file


def _is_parquet(path: Location) -> bool:
    return first_bytes(path, 4) == b"PAR1"
