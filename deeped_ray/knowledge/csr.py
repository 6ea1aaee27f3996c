"""Rows of unequal length in mapped arrays: row i is cells [offsets[i], offsets[i + 1]) of every column.

    NAME.offsets.npy, NAME.<column>.npy

Reduce tasks write pieces, each with the rows of one partition. The rows of the pieces follow each other, so joining them is
appending.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrays import concatenate_arrays, read_array, writing_array


def write_csr(prefix: Path, lengths: npt.NDArray[np.int64], **columns: npt.NDArray[Any]) -> None:
    """Rows of these lengths, as files that begin with `prefix`."""
    for name, values in {"offsets": _offsets(lengths), **columns}.items():
        np.save(f"{prefix}.{name}.npy", values)


def join_csr(pieces: Sequence[Path], target: Path, columns: Sequence[str]) -> None:
    """One piece at a time."""
    files = [Path(f"{piece}.offsets.npy") for piece in pieces]
    num_rows, end = sum(len(read_array(file)) - 1 for file in files), 0
    with writing_array(Path(f"{target}.offsets.npy"), np.int64, (num_rows + 1,)) as sink:
        np.zeros(1, np.int64).tofile(sink)
        for file in files:
            offsets = read_array(file)
            (offsets[1:] + end).tofile(sink)
            end += int(offsets[-1])
    for name in columns:
        concatenate_arrays([Path(f"{piece}.{name}.npy") for piece in pieces], Path(f"{target}.{name}.npy"))


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class Csr:
    """Reads the rows of a part: `words, counts = table.row(entity)`."""

    def __init__(self, part: Part, name: str, columns: Sequence[str]) -> None:
        # plain arrays over the maps: np.memmap makes every access ten times dearer
        self.offsets: npt.NDArray[np.int64] = np.asarray(part.array(f"{name}.offsets"))
        self.columns = [np.asarray(part.array(f"{name}.{column}")) for column in columns]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, number: int) -> list[npt.NDArray[Any]]:
        start, end = self.offsets[number], self.offsets[number + 1]
        return [column[start:end] for column in self.columns]
