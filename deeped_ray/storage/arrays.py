"""Arrays in `.npy` files: written whole or not at all, joined without being held in memory."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from deeped_ray.storage.location import Location


def concatenate_arrays(pieces: Sequence[Path], target: Path) -> None:
    """Join one-dimensional .npy files into one, holding one piece in memory at a time."""
    arrays = [np.load(piece, mmap_mode="r", allow_pickle=False) for piece in pieces]
    total = np.lib.format.open_memmap(target, mode="w+", dtype=arrays[0].dtype, shape=(sum(map(len, arrays)),))
    position = 0
    for array in arrays:
        total[position : position + len(array)] = array
        position += len(array)
    total.flush()


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
