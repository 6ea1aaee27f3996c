"""What is known of a name alone, in arrays for the kernels: the same names come again and again.

    matched     entities with a name that resembles it (`name_index`), how, and how well
    lists       the lists of entities that have one of its words, and the letters of the word
    content     hashes of its words, rising
    titles      its words as titles have them (`title_evidence`)

Arrays are only added to, so that threads read them without a lock. When one is full, new ones take their place.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.embeddings.name_forms import acronym_of, initials_of
from deeped_ray.embeddings.name_index import REMEMBERED, NameIndex
from deeped_ray.knowledge.strings import hash64
from deeped_ray.linking.encoding import Floats, Ints
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.linking.title_evidence import words_of_names

MATCHES = 2**20
"""Entities that are kept, of all names together."""
_WORDS = 4 * REMEMBERED


class _Known(NamedTuple):
    """Of one name."""

    entity: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    strength: Floats
    lists: Ints
    content: Ints
    titles: Ints
    num_letters: int
    initials: int
    acronym: int


class Names(NamedTuple):
    """Of all names. What a name has of an array begins and ends at its places."""

    matched: Ints
    """Places in the next three, [names, 2]."""
    entity: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    strength: Floats
    listed: Ints
    """Places in `lists`."""
    lists: Ints
    contained: Ints
    """Places in `content`."""
    content: Ints
    titled: Ints
    """Places in `titles`."""
    titles: Ints
    num_letters: Floats
    """Of all words but stop words, 1 at least."""
    initials: Ints
    """Hashes; 0 for none."""
    acronym: Ints


class _Page:
    def __init__(self, num_names: int, num_matches: int, num_words: int) -> None:
        self.slots: dict[str, int] = {}
        bounds = [np.zeros((num_names, 2), np.int64) for _ in range(4)]
        self.names = Names(
            *(bounds[0], np.empty(num_matches, np.int32), np.empty(num_matches, np.int8)),
            *(np.empty(num_matches, np.float32), bounds[1], np.empty((num_words, 3), np.int64)),
            *(bounds[2], np.empty(num_words, np.int64), bounds[3], np.empty((num_words, 4), np.int64)),
            *(np.empty(num_names, np.float32), np.empty(num_names, np.int64), np.empty(num_names, np.int64)),
        )
        self._ends = [0, 0, 0, 0]

    def has_room(self, known: Iterable[_Known]) -> bool:
        rooms = [len(each) for each in (self.names.entity, self.names.lists, self.names.content, self.names.titles)]
        sizes = np.sum([(len(each.entity), *_num_words(each)) for each in known], axis=0)
        number = len(self.slots) + len([*known])
        return number <= len(self.names.initials) and bool((self._ends + sizes <= rooms).all())

    def add(self, surface: str, known: _Known) -> None:
        names, slot = self.names, len(self.slots)
        columns = (
            (names.matched, ((names.entity, known.entity), (names.kind, known.kind), (names.strength, known.strength))),
            (names.listed, ((names.lists, known.lists),)),
            (names.contained, ((names.content, known.content),)),
            (names.titled, ((names.titles, known.titles),)),
        )
        for place, (bounds, parts) in enumerate(columns):
            start = self._ends[place]
            end = start + len(parts[0][1])
            for array, values in parts:
                array[start:end] = values
            bounds[slot], self._ends[place] = (start, end), end
        names.num_letters[slot] = max(known.num_letters, 1)
        names.initials[slot], names.acronym[slot] = known.initials, known.acronym
        self.slots[surface] = slot  # last: whoever finds it finds the rest


class KnownNames:
    """Looks names up once. Threads may share it."""

    def __init__(self, index: NameIndex) -> None:
        self.index = index
        self._page = _Page(REMEMBERED, MATCHES, _WORDS)
        self._lock = threading.Lock()

    def take(self, surfaces: Sequence[str], pause: Pause = no_pause) -> tuple[Names, Ints]:
        """All names, and the slots of some of them."""
        page = self._page
        slots = [*map(page.slots.get, surfaces)]
        if None in slots:
            missing = {surface for surface, slot in zip(surfaces, slots, strict=True) if slot is None}
            # not under the lock: whoever pauses waits for others
            page = self._add({*surfaces}, self._know([*missing], pause))
            slots = [page.slots[surface] for surface in surfaces]
        return page.names, np.array(slots, np.int64)

    def _add(self, surfaces: set[str], found: Mapping[str, _Known]) -> _Page:
        with self._lock:
            page = self._page
            missing = self._with(found, surfaces - page.slots.keys())
            if not page.has_room(missing.values()):
                missing = self._with(found, surfaces)
                num_matches = sum(len(each.entity) for each in missing.values())
                num_words = sum(max(_num_words(each)) for each in missing.values())
                page = _Page(max(REMEMBERED, len(surfaces)), max(MATCHES, num_matches), max(_WORDS, num_words))
            for surface, known in missing.items():
                page.add(surface, known)
            self._page = page
            return page

    def _with(self, found: Mapping[str, _Known], surfaces: Iterable[str]) -> dict[str, _Known]:
        """All of these, of which some are found already."""
        rest = self._know([surface for surface in surfaces if surface not in found])
        return {surface: found[surface] if surface in found else rest[surface] for surface in surfaces}

    def _know(self, surfaces: Sequence[str], pause: Pause = no_pause) -> dict[str, _Known]:
        titles = words_of_names(surfaces)
        return {
            surface: self._know_one(surface, own) for surface, own in zip(paced(surfaces, pause), titles, strict=True)
        }

    def _know_one(self, surface: str, titles: Ints) -> _Known:
        matches, words, form = self.index.find(surface), self.index.words_of(surface), self.index.form(surface)
        return _Known(
            *(matches.entities, matches.kinds, matches.strengths, words.lists),
            *(np.sort(np.array([_hash(word) for word in form.words], np.int64)), titles),
            *(words.num_letters, _hash(initials_of(surface)), _hash(acronym_of(surface))),
        )


def _num_words(known: _Known) -> tuple[int, int, int]:
    return len(known.lists), len(known.content), len(known.titles)


def _hash(word: str) -> int:
    """As a signed number; 0 of nothing."""
    return int(np.uint64(hash64(word)).view(np.int64)) if word else 0
