"""Arrow and Parquet files of plain columns only.

A column of an extension type is what code in this process says it is. Ray Data, which Ray Train imports, registers one
whose values are pickles: looking at them would run whatever a file says.
"""

from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.types import DeepEdError

Opened = TypeVar("Opened")


class NotPlainError(DeepEdError):
    """A file whose columns are of types that code gives meaning to."""


def read_table(source: Any, **options: Any) -> pa.Table:
    """A Parquet file."""
    return plain(pq.read_table(source, **options))


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    return plain(pq.ParquetFile(source, **options))


def open_arrow(source: Any) -> pa.ipc.RecordBatchFileReader:
    return plain(pa.ipc.open_file(source))


def plain(opened: Opened) -> Opened:
    """A table, or an opened Parquet or Arrow file, if its columns are plain; to be asked before any value is looked at."""
    any_opened: Any = opened
    schema = any_opened.schema_arrow if hasattr(any_opened, "schema_arrow") else any_opened.schema
    for field in schema:
        if _is_extended(field.type):
            raise NotPlainError(
                f"Column {field.name!r} has the type {field.type}: expected text, numbers and lists of these."
            )
    return opened


def _is_extended(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    inner += [kind.value_type] if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else []
    return isinstance(kind, pa.BaseExtensionType) or any(map(_is_extended, inner))
