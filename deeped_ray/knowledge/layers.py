"""A table with a row for every entity, in two layers: those of the knowledge base, mapped, and a few more in memory.

Entities that the knowledge base lacks, as candidate lists may name them, are numbered after its own. So the first layer is
never copied: row `i` is `own[i]`, and from `len(own)` on `extra[i - len(own)]`. A few rows of the first layer may be replaced.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class Layers:
    """Reads rows of both layers."""

    def __init__(
        self,
        own: npt.NDArray[Any],
        extra: npt.NDArray[Any] | None = None,
        replaced: Mapping[int, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.own = own
        self.extra = np.zeros((0, *own.shape[1:]), own.dtype) if extra is None else extra
        self._replaced = np.array(sorted(replaced or {}), np.int64)
        self._instead = np.array([(replaced or {})[row] for row in self._replaced.tolist()], own.dtype)

    def __len__(self) -> int:
        return len(self.own) + len(self.extra)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.own.shape[1:]

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        """Of one row, or of an array of them."""
        if not len(self.extra) and not len(self._replaced):
            taken: npt.NDArray[Any] = self.own[rows]
            return taken
        rows = np.asarray(rows, np.int64)
        is_extra = rows >= len(self.own)
        found: npt.NDArray[Any] = np.array(self.own[np.where(is_extra, 0, rows)])
        found[is_extra] = self.extra[rows[is_extra] - len(self.own)]
        if len(self._replaced):
            place = np.minimum(np.searchsorted(self._replaced, rows), len(self._replaced) - 1)
            is_replaced = self._replaced[place] == rows
            found[is_replaced] = self._instead[place[is_replaced]]
        return found
