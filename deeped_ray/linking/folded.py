"""Vectors times the forms of the model, remembered: they depend on no document.

A x_w and B x_w of all words would be twice their vectors, in every process, C x_e of all entities as much as theirs. The
words and entities of one text are mostly those of others, so that some thousand rows save most of the work.

Rows have a width that is a multiple of WIDTH, with zeros at the end: then the compiled loops have no rest, which would
take a fifth of their time.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking import kernels
from deeped_ray.linking.encoding import Floats, Ints
from deeped_ray.linking.remembered import Slots

SLOTS = 2**14
"""Rows that are kept. Of a form of 300 x 300: 21 MB."""
WIDTH = 64


class Folded:
    """A x for the rows x of a table of vectors, for each of some forms A. Threads may share it."""

    def __init__(self, vectors: Layers, forms: Sequence[Floats], *, slots: int = SLOTS) -> None:
        self.vectors, self._given, self._num_slots = vectors, forms, slots
        more = -vectors.shape[1] % WIDTH
        full = [np.pad(np.diag(form) if form.ndim == 1 else form, (0, more)) for form in forms]
        self._forms = np.concatenate(full)  # [forms * width, width]
        self._page = self._empty(slots)
        self._lock = threading.Lock()

    def _empty(self, number: int) -> tuple[Slots, Floats]:
        return Slots(number), np.empty((number, len(self._given), self._forms.shape[1]), np.float32)

    def of(self, vectors: Layers) -> "Folded":
        """The same forms for other vectors."""
        return Folded(vectors, self._given, slots=self._num_slots)

    def take(self, rows: Ints) -> tuple[Floats, Ints]:
        """A table [slots, forms, width], and the slots of rows; the same bytes whether they were kept or not."""
        slots, table = self._page
        found, num_missing = slots.find(rows)
        return (table, found) if not num_missing else self._add(rows)

    def _add(self, rows: Ints) -> tuple[Floats, Ints]:
        with self._lock:
            slots, table = self._page
            found, num_missing = slots.find(rows)
            if slots.given + num_missing > slots.size:
                slots, table = self._empty(max(self._num_slots, len(rows)))
                found[:] = -1
            new = np.unique(rows[found < 0])  # none, if another thread has added them meanwhile
            table[slots.given : slots.given + len(new)] = self._products(new)
            slots.add(new)
            self._page = slots, table
            return table, slots.find(rows)[0]

    def _products(self, rows: Ints) -> Floats:
        # in fours, since the kernel adds up the rest in another order
        padded = np.resize(rows, -(-len(rows) // 4) * 4)
        made = np.empty((len(padded), len(self._forms)), np.float32)
        kernels.dots(wide(self.vectors[padded]), self._forms, made)
        return made[: len(rows)].reshape(len(rows), len(self._given), self._forms.shape[1])


class Folding(NamedTuple):
    """Vectors of all entities and words as a model needs them."""

    entities: Layers
    times_words: Folded
    """A x_w and B x_w."""
    times_entities: Folded | None
    """C x_e; None for a local model."""

    def of(self, entities: Layers) -> "Folding":
        """The same with other entities."""
        return Folding(entities, self.times_words, self.times_entities and self.times_entities.of(entities))


def wide(vectors: Floats) -> Floats:
    """With zeros at the end of every row, to a multiple of WIDTH."""
    number, d = vectors.shape
    found = np.zeros((number, width_of(d)), np.float32)
    found[:, :d] = vectors
    return found


def width_of(d: int) -> int:
    return -(-d // WIDTH) * WIDTH
