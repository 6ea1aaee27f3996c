"""A set of strings on disk that answers "which row is this one?" without a Python dict.

Rows are ordered by a 64-bit hash; a look-up is a binary search in a memory-mapped array, then a comparison with the
stored string, so that two strings with the same hash cannot be mistaken for each other.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.storage.arrays import concatenate_arrays
from deeped_ray.storage.arrow import open_arrow
from deeped_ray.storage.cache import temporary_folder


def hash64(string: str) -> int:
    """The one hash of strings. `text.Spans` has another, since it hashes all tokens of a text at once."""
    return int.from_bytes(blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def hash_order(strings: Sequence[str]) -> npt.NDArray[np.int64]:
    """The order in which `write_strings` expects its strings: by hash, then by string."""
    keys = [(hash64(string), string) for string in strings]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def hashes_of(strings: Sequence[str]) -> npt.NDArray[np.uint64]:
    return np.fromiter((hash64(string) for string in strings), dtype=np.uint64, count=len(strings))


def write_strings(folder: Path, name: str, strings: Sequence[str]) -> None:
    """Write distinct strings, given in `hash_order`, as `name.hashes.npy` and `name.arrow`."""
    write_hashed_strings(folder, name, hashes_of(strings), pa.array(strings, type=pa.large_string()))


def write_hashed_strings(
    folder: Path, name: str, hashes: npt.NDArray[np.uint64], strings: pa.Array | pa.ChunkedArray
) -> None:
    assert np.all(hashes[1:] >= hashes[:-1]), "strings must come in hash order"
    np.save(folder / f"{name}.hashes.npy", hashes)
    strings = strings.cast(pa.large_string())
    write_mapped(folder / f"{name}.arrow", pa.table({"string": strings}))


def join_strings(pieces: Sequence[Path], folder: Path, name: str) -> None:
    """Strings of pieces, given by their prefixes, which follow each other in hash order. They stay on disk meanwhile."""
    concatenate_arrays([Path(f"{piece}.hashes.npy") for piece in pieces], folder / f"{name}.hashes.npy")
    strings = [read_strings(piece.parent, piece.name) for piece in pieces]
    with temporary_folder(folder) as aside:
        write_mapped(folder / f"{name}.arrow", pa.table({"string": join_arrays(strings, aside)}))


def join_arrays(arrays: Sequence[pa.Array], aside: Path) -> pa.Array:
    """All strings in one piece, over files: Arrow would hold them in memory to write them so."""
    position = 0
    with open(aside / "strings", "wb") as sink, open(aside / "offsets", "wb") as offsets_sink:
        offsets_sink.write(bytes(8))
        for array in arrays:
            _, offsets_buffer, content = array.buffers()
            offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
            first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
            offsets_sink.write((offsets[1:] - first + position).tobytes())
            sink.write(memoryview(content)[first:last] if content is not None else b"")
            position += last - first
    buffers = [pa.memory_map(str(aside / name)).read_buffer() for name in ("offsets", "strings")]
    return pa.Array.from_buffers(pa.large_string(), sum(map(len, arrays)), [None, *buffers])


def read_strings(folder: Path, name: str) -> pa.Array:
    return read_mapped(folder / f"{name}.arrow")["string"]


def take_strings(strings: pa.Array, rows: npt.NDArray[np.int64]) -> list[str]:
    """The strings of some rows."""
    # pa.array would import pandas: see `numbers_of`
    buffer = pa.py_buffer(np.ascontiguousarray(rows, np.int64))
    taken: list[str] = strings.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, buffer])).to_pylist()
    return taken


def write_mapped(path: Path, table: pa.Table) -> None:
    """A table that readers map into memory: Arrow's own layout, not compressed, each column in one piece."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def read_mapped(path: Path) -> dict[str, pa.Array]:
    """Columns that stay in the file until they are looked at."""
    table = open_arrow(pa.memory_map(str(path))).read_all()
    # combine_chunks would copy them out of the memory map
    return {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """A column as an array, without a copy unless it holds truth values, which Arrow packs into bits."""
    # to_numpy, pa.array and pa.scalar import pandas, which takes as long as all else that a look-up imports
    is_bits = pa.types.is_boolean(column.type)
    numbers = np.from_dlpack(column.cast(pa.uint8()) if is_bits else column)
    return numbers.view(np.bool_) if is_bits else numbers


class StringIndex:
    """Finds the row of a string."""

    def __init__(self, folder: Path, name: str) -> None:
        # a plain array over the map: np.memmap makes every element access ten times dearer
        self.hashes = np.asarray(np.load(folder / f"{name}.hashes.npy", mmap_mode="r", allow_pickle=False))
        self._strings = read_strings(folder, name)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, row: int) -> str:
        string: str = self._strings[row].as_py()
        return string

    def take(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """The strings of many rows at once."""
        return take_strings(self._strings, rows)

    def find(self, string: str) -> int | None:
        key = np.uint64(hash64(string))
        row = int(self.hashes.searchsorted(key))
        while row < len(self.hashes) and self.hashes[row] == key:
            if self[row] == string:
                return row
            row += 1
        return None

    def find_all(self, strings: Sequence[str]) -> npt.NDArray[np.int64]:
        """`find` for many strings at once, -1 where there is none."""
        keys = hashes_of(strings)
        rows = np.searchsorted(self.hashes, keys).astype(np.int64)
        is_hit = rows < len(self.hashes)
        is_hit[is_hit] = self.hashes[rows[is_hit]] == keys[is_hit]
        hits = np.flatnonzero(is_hit)
        stored = self.take(rows[hits])
        for place, string in zip(hits.tolist(), stored, strict=True):
            if string != strings[place]:  # another string with the same hash
                found = self.find(strings[place])
                rows[place], is_hit[place] = (-1, False) if found is None else (found, True)
        return np.where(is_hit, rows, -1)
