"""Names that count as mentions wherever they stand: those of entities from files, and of changes to a running server.

How mentions are usually told from other words, by how often they are links, says nothing about them: nobody has linked them.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from deeped_ray.corpus.own_entities import is_telling
from deeped_ray.corpus.teaching import is_whole
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.linking.detection import Detector, Heard, SpacyDetector, Span
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.text import UNSPACED, words_of
from deeped_ray.types import Mentions

_UNSPACED = re.compile(f"[{UNSPACED}]")


class NamesDetector(Detector):
    """Finds the mentions that another detector finds, and these names, as they are written, where no longer mention stands."""

    def __init__(self, base: Detector | SpacyDetector, names: Iterable[str]) -> None:
        self._base, self.config = base, base.config
        self._names: dict[str, list[str]] = {}
        self._unspaced: list[str] = []
        for name in names:
            if not is_telling(name):
                continue
            if _UNSPACED.match(name):
                self._unspaced.append(name)
            else:
                self._names.setdefault(_first_word(name), []).append(name)
        for own in self._names.values():
            own.sort(key=lambda name: (-len(name), name))
        self._first_words = [*self._names]
        self._vocabulary = Vocabulary.of(self._first_words)

    def spans(
        self,
        text: str,
        pause: Pause = no_pause,
        *,
        mentions: Mentions | None = None,
        heard: Heard | None = None,
    ) -> list[Span]:
        heard = [] if heard is None else heard
        found = self._base.spans(text, pause, mentions=mentions, heard=heard)
        added = list(self._added(text, heard))
        return _without_overlap([*found, *added]) if added else found

    def _added(self, text: str, heard: Heard) -> Iterator[Span]:
        for word in {self._first_words[row] for _, units in heard for row in self._rows_of(units)}:
            start = text.find(word)
            while start >= 0:
                end = next((start + len(name) for name in self._names[word] if _stands(text, start, name)), None)
                if end is not None:
                    yield start, end
                start = text.find(word, start + len(word))
        for name in self._unspaced:
            start = text.find(name)
            while start >= 0:
                yield start, start + len(name)
                start = text.find(name, start + len(name))

    def _rows_of(self, units: Any) -> list[int]:
        """First words that are there. Most texts have none of many: the detector's hashes tell that in a moment."""
        from deeped_ray.linking.hash_kernels import rows_of_hashes  # imports numba, which look-ups do not need

        rows = np.empty(len(units.own), np.int64)
        rows_of_hashes(units.own, *self._vocabulary, rows)
        found: list[int] = rows[rows >= 0].tolist()
        return found


@functools.lru_cache(maxsize=2**18)  # every change makes a new detector of nearly the same names
def _first_word(name: str) -> str:
    """Where a text is looked at more closely."""
    return words_of(name)[0]


def _stands(text: str, start: int, name: str) -> bool:
    return text.startswith(name, start) and is_whole(text, start, start + len(name))


def _without_overlap(spans: Sequence[Span]) -> list[Span]:
    """The longest first; of equals, the first."""
    kept: list[Span] = []
    taken: set[int] = set()
    for start, end in sorted(set(spans), key=lambda span: (span[0] - span[1], span[0])):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            kept.append((start, end))
    return sorted(kept)
