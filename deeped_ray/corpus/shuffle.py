"""How map tasks hand rows to reduce tasks: one Arrow file per map task, with one record batch per partition.

A reducer reads its batch of every file, so its memory is the size of one partition, however large the dump.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.storage.arrow import open_arrow
from deeped_ray.storage.location import Location

_SUMMARY = b"summary"
_READERS = 8


def partition_of_hashes(hashes: npt.NDArray[np.uint64], num_partitions: int) -> npt.NDArray[np.int64]:
    """Equal slices of the hash range, so that partitions one after the other are in hash order."""
    top: npt.NDArray[np.uint64] = hashes >> np.uint64(32)
    return ((top * np.uint64(num_partitions)) >> np.uint64(32)).astype(np.int64)


def partition_of_ids(ids: npt.NDArray[np.int64], num_ids: int, num_partitions: int) -> npt.NDArray[np.int64]:
    """Equal slices of 0 .. num_ids - 1."""
    return ids.astype(np.int64) * num_partitions // max(num_ids, 1)


def spill(
    target: Location,
    table: pa.Table,
    partitions: npt.NDArray[np.int64],
    num_partitions: int,
    summary: Mapping[str, Any] | None = None,
) -> None:
    """Write the rows of every partition as one batch."""
    order = np.argsort(partitions, kind="stable")
    ordered = table.take(pa.array(order)).combine_chunks()
    bounds = np.searchsorted(partitions[order], np.arange(num_partitions + 1))
    schema = table.schema.with_metadata({_SUMMARY: json.dumps(summary or {}).encode()})
    with (
        target.writing() as path,
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        for start, end in itertools.pairwise(bounds):
            batches = ordered.slice(start, end - start).combine_chunks().to_batches()
            writer.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema))


def spill_by_hash(target: Location, table: pa.Table, num_partitions: int) -> None:
    spill(target, table, partition_of_hashes(table["hash"].to_numpy(), num_partitions), num_partitions)


def gather(files: Sequence[Location], partition: int) -> pa.Table:
    """The rows of one partition, from all files."""

    def batch_of(file: Location) -> pa.RecordBatch:
        return file.reading(lambda source: open_arrow(source).get_batch(partition))

    with ThreadPoolExecutor(_READERS) as readers:  # storage that is far away answers slowly, but many at once
        batches = list(readers.map(batch_of, files))
    tables = [pa.Table.from_batches([batch]).replace_schema_metadata(None) for batch in batches]
    return pa.concat_tables(tables).combine_chunks()


def read_summary(file: Location) -> dict[str, Any]:
    metadata = file.reading(lambda source: open_arrow(source).schema.metadata or {})
    summary: dict[str, Any] = json.loads(metadata.get(_SUMMARY, b"{}"))
    return summary
