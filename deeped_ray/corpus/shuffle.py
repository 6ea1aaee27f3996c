"""How map tasks hand rows to reduce tasks: by files of rows that are sorted by their first column, the key.

    map         spills a file with one record batch for each of 16 ranges of keys, and counts the bytes of each
    (driver)    plans: a range that is too much for one reducer is cut into partitions
    combine     makes of that range's batches in many files one file, with a batch per partition
    reduce      takes its batch of every file, a slice of its keys at a time if there is more than was planned

A piece is a batch that somebody reads: on object storage, a request or two. There are 16 for each file of a map task, and
for each partition one for each combined file of its range. Without combining there would be one for every file of a map
task and every partition, which grows with the square of the dump.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.storage.arrow import open_arrow, read_table
from deeped_ray.storage.location import Location

HASHES = 2**64
"""Keys are below this number: hashes, or ids if their number is given instead."""
MAX_RANGES = 16
COMBINED = 2
"""Times the rows that a reducer gathers, which a combining task gathers: to sort them takes less memory than to add them up."""
_READERS = 8
Spilled = dict[str, list[int]]
"""Names of files, and the bytes in memory of the rows of each range."""


class Partition(NamedTuple):
    """What one reducer gathers."""

    table: str
    label: str
    """Of partitions of one table, these are in the order of their keys."""
    first: int
    end: int
    """Keys are below this."""
    batch: int
    files: tuple[tuple[str, ...], ...]
    """Names, for each set of rows that is reduced together and kept apart."""

    @property
    def name(self) -> str:
        return f"{self.table}-{self.label}"


class Combining(NamedTuple):
    """A range's batch of some files, which become one file with a batch for each partition of the range."""

    label: str
    files: tuple[str, ...]
    batch: int
    borders: tuple[int, ...]
    """First keys of all partitions but the first."""


class Plan(NamedTuple):
    partitions: list[Partition]
    combinings: list[Combining]

    @property
    def num_pieces(self) -> int:
        """Batches that are read."""
        combined = sum(len(each.files) for each in self.combinings)
        return combined + sum(len(files) for partition in self.partitions for files in partition.files)


class Slice(NamedTuple):
    """The rows of some keys, a table for each set."""

    first: int
    end: int
    sets: list[pa.Table]

    @property
    def rows(self) -> pa.Table:
        """If there is one set."""
        (rows,) = self.sets
        return rows

    @property
    def keys(self) -> range:
        return range(self.first, self.end)


@dataclass(frozen=True)
class Shuffle:
    """Any node can be handed one."""

    folder: Location
    max_bytes: int
    """Of rows, in memory, that a task gathers."""
    num_partitions: int = 0
    """At least so many; 0: as many as `max_bytes` asks for."""

    @property
    def num_ranges(self) -> int:
        return min(self.num_partitions or MAX_RANGES, MAX_RANGES)

    # -- map

    def spill(self, name: str, rows: pa.Table, *, num_keys: int = HASHES) -> Spilled:
        """A batch for each range of keys; returns how many bytes each has."""
        bounds = write_batches(self._file(name), rows, _borders(0, num_keys, self.num_ranges)[1:-1])
        bytes_per_row = rows.nbytes / max(rows.num_rows, 1)
        return {name: [int(size * bytes_per_row) for size in np.diff(bounds).tolist()]}

    # -- between

    def plan(self, table: str, *sets: Mapping[str, list[int]], num_keys: int = HASHES) -> Plan:
        """Partitions by what was spilled, in the order of their keys."""
        partitions, combinings = list[Partition](), list[Combining]()
        names = [tuple(each) for each in sets]
        sizes = [np.array([*each.values()], dtype=np.int64).reshape(-1, self.num_ranges) for each in sets]
        borders = _borders(0, num_keys, self.num_ranges)
        for batch in range(self.num_ranges):
            num_bytes = sum(int(each[:, batch].sum()) for each in sizes)
            count = max(1, -(-num_bytes // self.max_bytes), -(-self.num_partitions // self.num_ranges))
            label = f"{batch:04d}"
            if count == 1:
                partitions.append(Partition(table, label, borders[batch], borders[batch + 1], batch, tuple(names)))
                continue
            inner = _borders(batch * count, num_keys, self.num_ranges * count, count)
            made = []
            for place, (own, each) in enumerate(zip(names, sizes, strict=True)):
                groups = list(_groups(own, each[:, batch].tolist(), COMBINED * self.max_bytes))
                made.append(tuple(f"combined-{table}-{label}-{place}-{number:04d}" for number in range(len(groups))))
                combinings += map(Combining, made[-1], groups, itertools.repeat(batch), itertools.repeat(inner[1:-1]))
            for number, (first, end) in enumerate(itertools.pairwise(inner)):
                partitions.append(Partition(table, f"{label}-{number:04d}", first, end, number, tuple(made)))
        return Plan(partitions, combinings)

    def combine(self, combining: Combining) -> None:
        """Rows with the same key stay in the order of the files."""
        tables = [table for lot in self._read(combining.files, combining.batch) for table in lot]
        write_batches(self._file(combining.label), pa.concat_tables(tables), combining.borders)

    # -- reduce

    def slices(self, partition: Partition) -> Iterator[Slice]:
        """The rows of a partition, in slices of keys that are not too much at once: one, if the plan was right."""
        end = partition.first
        while True:
            first = end
            end, sets = self._gather(partition, first)
            yield Slice(first, end, sets)
            if end >= partition.end:
                return

    def _gather(self, partition: Partition, first: int) -> tuple[int, list[pa.Table]]:
        """Rows from a key on, up to one before which there are not too many; returns it, too."""
        end, held_bytes = partition.end, 0
        held: list[list[pa.Table]] = [[] for _ in partition.files]
        for number, files in enumerate(partition.files):
            for lot in self._read(files, partition.batch):
                tables = [_between(table, first, end) for table in lot]
                held[number] += tables
                held_bytes += sum(table.nbytes for table in tables)
                while held_bytes > self.max_bytes and (middle := _middle_key(held, first)) < end:
                    end = middle
                    held = [_cut(tables, first, end) for tables in held]
                    held_bytes = sum(table.nbytes for each in held for table in each)
        return end, [pa.concat_tables(each).combine_chunks() for each in held]

    def _read(self, names: Sequence[str], batch: int) -> Iterator[list[pa.Table]]:
        return read_batches([self._file(name) for name in names], batch)

    def _file(self, name: str) -> Location:
        return self.folder / f"{name}.arrow"


# -- files


def write_batches(target: Location, rows: pa.Table, borders: Sequence[int]) -> npt.NDArray[np.int64]:
    """Rows by their first column, with a batch up to each border and one beyond; returns where the batches begin and end."""
    keys, rows = rows[0].to_numpy(), rows.combine_chunks()
    if np.any(keys[1:] < keys[:-1]):
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows.take(pa.array(order))
    bounds = np.concatenate([[0], np.searchsorted(keys, np.array(borders, dtype=keys.dtype)), [len(keys)]])
    with (
        target.writing() as path,
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        for start, end in itertools.pairwise(bounds.tolist()):
            batches = rows.slice(start, end - start).combine_chunks().to_batches()
            writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema))
    return bounds


def read_batches(files: Sequence[Location], batch: int) -> Iterator[list[pa.Table]]:
    """One batch of every file, some files at a time."""

    def rows_of(file: Location) -> pa.Table:
        return pa.Table.from_batches([file.reading(lambda source: open_arrow(source).get_batch(batch))])

    with ThreadPoolExecutor(_READERS) as readers:  # storage that is far away answers slowly, but many at once
        for start in range(0, len(files), 4 * _READERS):
            yield list(readers.map(rows_of, files[start : start + 4 * _READERS]))


# -- what tasks have spilled


def spilled_by(results: Iterable[Mapping[str, Any]]) -> Spilled:
    """By some tasks, in the order of their items."""
    return {name: sizes for found in results for name, sizes in found["spilled"].items()}


def of_table(table: str, spilled: Spilled) -> Spilled:
    return {name: sizes for name, sizes in spilled.items() if name.startswith(f"{table}-")}


def combine(combining: Combining, shuffle: Shuffle) -> dict[str, Any]:
    """A task's work."""
    shuffle.combine(combining)
    return {}


def combined(run: Callable[..., Any], stage: str, shuffle: Shuffle, plans: Sequence[Plan]) -> list[Partition]:
    """The partitions of all plans, once their files are there."""
    run(stage, combine, [each for plan in plans for each in plan.combinings], shuffle, unit="files")
    return [partition for plan in plans for partition in plan.partitions]


# -- keys


def _borders(first: int, num_keys: int, num_slices: int, count: int | None = None) -> tuple[int, ...]:
    """The first keys of some of the slices of 0 .. num_keys - 1, and the end of the last; equal, but for one."""
    count = num_slices if count is None else count
    return tuple(-(-place * num_keys // num_slices) for place in range(first, first + count + 1))


def _groups(names: Sequence[str], sizes: Sequence[int], max_bytes: int) -> Iterator[tuple[str, ...]]:
    """Names that follow each other, as many as hold so many bytes together."""
    group, held = list[str](), 0
    for name, size in zip(names, sizes, strict=True):
        if group and held + size > max_bytes:
            yield tuple(group)
            group, held = [], 0
        group.append(name)
        held += size
    if group:
        yield tuple(group)


def _between(rows: pa.Table, first: int, end: int) -> pa.Table:
    keys = rows[0].to_numpy()
    start = int(np.searchsorted(keys, keys.dtype.type(first)))
    stop = int(np.searchsorted(keys, keys.dtype.type(end - 1), side="right")) if end > first else start
    return rows.slice(start, stop - start)


def _cut(tables: Sequence[pa.Table], first: int, end: int) -> list[pa.Table]:
    """Rows of these keys, copied, so that the others are not held by them."""
    kept = [_between(table, first, end) for table in tables]
    return [rows.take(pa.array(np.arange(rows.num_rows))) for rows in kept]


def _middle_key(held: Sequence[Sequence[pa.Table]], first: int) -> int:
    """Half of the rows have lower keys; the next key if the lowest has more."""
    keys = np.concatenate([table[0].to_numpy() for tables in held for table in tables])
    return max(int(np.partition(keys, len(keys) // 2)[len(keys) // 2]), first + 1)


def read_merged(files: Sequence[Location], **options: Any) -> pa.Table:
    """What reduce tasks have left as Parquet, one file a partition."""
    return pa.concat_tables([file.reading(lambda source: read_table(source, **options)) for file in files])
