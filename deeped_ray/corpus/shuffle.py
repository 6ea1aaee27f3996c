"""How map tasks hand rows to reduce tasks: one Arrow file per map task, with one record batch per partition.

A reducer reads its batch of every file, so its memory is the size of one partition, however large the dump.
"""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.storage.arrow import open_arrow, read_table
from deeped_ray.storage.location import Location

_READERS = 8


@dataclass(frozen=True)
class Shuffle:
    """Any node can be handed one."""

    folder: Location
    num_partitions: int

    def spill(self, name: str, rows: pa.Table) -> None:
        """By equal slices of the range of hashes, so that partitions one after the other are in hash order."""
        top: npt.NDArray[np.uint64] = rows["hash"].to_numpy() >> np.uint64(32)
        self._spill(name, rows, ((top * np.uint64(self.num_partitions)) >> np.uint64(32)).astype(np.int64))

    def spill_by_id(self, name: str, rows: pa.Table, *, num_ids: int) -> None:
        """By equal slices of 0 .. num_ids - 1; the first column has the ids."""
        self._spill(name, rows, rows[0].to_numpy().astype(np.int64) * self.num_partitions // max(num_ids, 1))

    def ids(self, partition: int, *, num_ids: int) -> range:
        """The ids that `spill_by_id` gives to a partition."""
        first, last = (-(-border * num_ids // self.num_partitions) for border in (partition, partition + 1))
        return range(first, last)

    def gather(self, names: Sequence[str], partition: int) -> pa.Table:
        """The rows of one partition, from all files."""

        def batch_of(name: str) -> pa.RecordBatch:
            return self._file(name).reading(lambda source: open_arrow(source).get_batch(partition))

        with ThreadPoolExecutor(_READERS) as readers:  # storage that is far away answers slowly, but many at once
            batches = list(readers.map(batch_of, names))
        return pa.Table.from_batches(batches).combine_chunks()

    def _file(self, name: str) -> Location:
        return self.folder / f"{name}.arrow"

    def _spill(self, name: str, rows: pa.Table, partitions: npt.NDArray[np.int64]) -> None:
        """Write the rows of every partition as one batch."""
        order = np.argsort(partitions, kind="stable")
        ordered = rows.take(pa.array(order)).combine_chunks()
        bounds = np.searchsorted(partitions[order], np.arange(self.num_partitions + 1))
        with (
            self._file(name).writing() as path,
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
        ):
            for start, end in itertools.pairwise(bounds):
                batches = ordered.slice(start, end - start).combine_chunks().to_batches()
                writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema))


def read_merged(files: Sequence[Location], **options: Any) -> pa.Table:
    """What reduce tasks have left as Parquet, one file a partition."""
    return pa.concat_tables([file.reading(lambda source: read_table(source, **options)) for file in files])
