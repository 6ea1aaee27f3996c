"""Word vectors times the forms of the model, remembered: they depend on no document.

A x_w and B x_w of all words would be twice their vectors, in every process. The words of one text are mostly
those of others, so that a few thousand rows, in a table that does not grow, save most of the work.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking import kernels
from deeped_ray.linking.encoding import Floats, Ints

SLOTS = 2**14
"""Rows that are kept. Of a form of 300 x 300: 20 MB."""


class Folded:
    """x' A for the rows x of a table of vectors, for each of some forms A. Threads may share it."""

    def __init__(self, vectors: Floats, forms: Sequence[Floats], *, slots: int = SLOTS) -> None:
        full = [np.diag(form) if form.ndim == 1 else form for form in forms]
        self.vectors = vectors
        self._forms = np.ascontiguousarray(np.concatenate(full, axis=1))
        self._owners = np.full(slots, -1, np.int64)
        self._kept = np.empty((len(full), slots, vectors.shape[1]), np.float32)
        self._lock = threading.Lock()

    def take(self, rows: Ints) -> Floats:
        """The rows for every form, [forms, n, d]; the same bytes whether they were kept or not."""
        slots = rows % len(self._owners)
        with self._lock:
            found = np.take(self._kept, slots, axis=1)
            missing = np.flatnonzero(self._owners[slots] != rows)
        if len(missing):
            made = np.empty((len(missing), self._forms.shape[1]), np.float32)
            kernels.transform(self.vectors, rows[missing], self._forms, made)
            found[:, missing] = made.reshape(len(missing), len(found), -1).swapaxes(0, 1)
            with self._lock:
                # of two that share a slot one stays, in both arrays
                _, last = np.unique(slots[missing], return_index=True)
                self._kept[:, slots[missing[last]]] = found[:, missing[last]]
                self._owners[slots[missing[last]]] = rows[missing[last]]
        return found


class Folding(NamedTuple):
    """Vectors of all entities and words as a model needs them."""

    entities: Layers
    times_words: Folded
    """A x_w and B x_w."""
