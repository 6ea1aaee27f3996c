"""Arrays in `.npy` files: written whole or not at all, joined without being held in memory."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from deeped_ray.storage.cache import temporary_folder
from deeped_ray.storage.location import Location

ROWS_AT_ONCE = 2**19


def read_array(piece: str | Path) -> npt.NDArray[Any]:
    """Mapped, for as long as it is used."""
    array: npt.NDArray[Any] = np.load(piece, mmap_mode="r", allow_pickle=False)
    return array


def concatenate_arrays(pieces: Sequence[Path], target: Path) -> None:
    """Join one-dimensional .npy files into one, with one piece in memory, or in a map, at a time."""
    size, dtype = sum(len(read_array(piece)) for piece in pieces), read_array(pieces[0]).dtype
    with writing_array(target, dtype, (size,)) as sink:
        for piece in pieces:
            read_array(piece).tofile(sink)


def in_ranges(
    pieces: Sequence[Path], *columns: str, max_rows: int = ROWS_AT_ONCE
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """All rows of `.npy` columns in pieces, by rising ranges of the first column: 64-bit hashes, spread evenly.

    Yields, for a range at a time: the piece of each row, its place there, and the columns. They are in the order of the
    pieces, and not sorted. Every range reads all pieces.
    """
    size = sum(len(read_array(f"{piece}.{columns[0]}.npy")) for piece in pieces)
    num_ranges = max(1, -(-size // max_rows))
    for place in range(num_ranges):
        first, last = (np.uint64(each) for each in (place * 2**64 // num_ranges, (place + 1) * 2**64 // num_ranges - 1))
        found: list[tuple[npt.NDArray[Any], ...]] = []
        for number, piece in enumerate(pieces):
            keys = read_array(f"{piece}.{columns[0]}.npy")
            rows = np.flatnonzero((keys >= first) & (keys <= last))
            found.append(
                (np.full(len(rows), number), rows, *(read_array(f"{piece}.{name}.npy")[rows] for name in columns))
            )
        yield tuple(map(np.concatenate, zip(*found, strict=True)))


@contextlib.contextmanager
def joining(folder: Path, *names: str) -> Iterator[Callable[..., None]]:
    """Arrays `name.npy` that come in pieces, one of each at a time, and whose length is known at the end."""
    with temporary_folder(folder) as aside:
        count = itertools.count()

        def add(*arrays: npt.NDArray[Any]) -> None:
            number = next(count)
            for name, array in zip(names, arrays, strict=True):
                np.save(aside / f"{name}.{number:06d}.npy", array)

        yield add
        for name in names:
            concatenate_arrays(sorted(aside.glob(f"{name}.*.npy")), folder / f"{name}.npy")


@contextlib.contextmanager
def writing_array(target: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Iterator[BinaryIO]:
    """A `.npy` file of known shape to append rows to, which are in no map and no memory afterwards."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with open(target, "wb") as sink:
        np.lib.format.write_array_header_1_0(sink, header)
        yield sink


def save_array(target: Location, array: npt.NDArray[Any]) -> None:
    """A `.npy` file that appears whole or not at all."""
    with target.writing() as path, open(path, "wb") as handle:
        np.save(handle, array)
