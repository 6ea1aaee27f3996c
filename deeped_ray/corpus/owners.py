"""Who has which titles: the task that reads the merged rows they are among, some files `titles-*.parquet` of the part `pages`.

Tasks of `resolving` write to the owners of titles, and an owner reads what all of them have written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.corpus.shuffle import read_batches, read_merged, write_batches
from deeped_ray.storage.arrow import open_parquet
from deeped_ray.storage.location import Location

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Owners:
    """Who has the merged rows of which titles, in the order of their hashes, and how their tasks write to each other."""

    folder: Location
    files: tuple[tuple[Location, ...], ...]
    """Of each owner."""
    borders: tuple[int, ...]
    """The lowest hash of each owner but the first."""

    @classmethod
    def of(cls, files: Sequence[Location], folder: Location, *, max_rows: int) -> "Owners":
        """Small files that follow each other have one owner."""
        owned, borders, held = [[files[0]]], list[int](), 0
        for number, file in enumerate(files):
            num_rows, first_hash = file.reading(_rows_and_first_hash)
            if number and held + num_rows > max_rows and num_rows:
                owned.append([])
                borders.append(first_hash)
                held = 0
            if number:
                owned[-1].append(file)
            held += num_rows
        return cls(folder, tuple(map(tuple, owned)), tuple(borders))

    def __len__(self) -> int:
        return len(self.files)

    def read(self, owner: int, *columns: str) -> pa.Table:
        return read_merged(self.files[owner], columns=list(columns)).combine_chunks()

    def send(self, kind: str, sender: int, rows: pa.Table) -> None:
        """To the owners of the titles whose hashes are in the first column."""
        write_batches(self._file(kind, sender), rows, self.borders)

    def received(self, kind: str, owner: int, *, num_senders: int) -> pa.Table:
        files = [self._file(kind, sender) for sender in range(num_senders)]
        return pa.concat_tables([table for lot in read_batches(files, owner) for table in lot]).combine_chunks()

    def keep(self, kind: str, owner: int, rows: pa.Table) -> None:
        """For a later pass of the same owner."""
        write_batches(self._file(kind, owner), rows, ())

    def kept(self, kinds: Sequence[str], owner: int) -> pa.Table:
        files = [self._file(kind, owner) for kind in kinds]
        return pa.concat_tables([table for lot in read_batches(files, 0) for table in lot]).combine_chunks()

    def _file(self, kind: str, number: int) -> Location:
        return self.folder / f"{kind}-{number:04d}.arrow"


def _rows_and_first_hash(source: Any) -> tuple[int, int]:
    file = open_parquet(source)
    num_rows = file.metadata.num_rows
    return num_rows, int(file.read_row_group(0, columns=["hash"])["hash"][0].as_py()) if num_rows else 0


def find_rows(hashes: Hashes, wanted: Hashes) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Row of each wanted hash among those that rise, and whether it is there."""
    if not len(hashes):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    rows = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return rows, hashes[rows] == wanted
