"""Which spans of a text may be mentions: everything that the mention table knows, and runs of capitalised words.

    as written     sequences of units that are mentions; in Hebrew and Arabic also without a prefix
    in usual case  the same for capitals (BANK OF ENGLAND) and for sentences without any capital (bank of england)
    in lower case  the same for the lower-cased text: how common words are told from names
    runs           up to four capitalised words in a row, known or not

Spans overlap, and most of them are no mentions: that is for the model of `detection` to say.
"""

from typing import NamedTuple

import numpy as np

from deeped_ray.corpus.occurrences import MAX_UNITS, Occurrences, SequenceIndex, later_hashes
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.linking.units import APOSTROPHES, BREAK, MAX_PREFIX, Runs, Units, read_units, runs_of, sums
from deeped_ray.text import Bools, Hashes, Ints

MAX_RUN = 4
"""Words of a name that the mention table does not know."""
LEAST_LINKED = 0.02
"""A lower-case string that is linked more seldom where it occurs is not looked at."""


class Found(NamedTuple):
    """Spans [first, first + length) of units, the first unit without `trimmed` letters; rows of the mention table or -1."""

    first: Ints
    length: Ints
    trimmed: Ints
    own: Ints
    headline: Ints
    lower: Ints

    def where(self, is_kept: Bools) -> "Found":
        return Found(*(column[is_kept] for column in self))


class Read(NamedTuple):
    """A piece of text with its spans."""

    units: Units
    runs: Runs
    found: Found
    words: Ints
    """The units' ids in the vocabulary of the dump, -1 where there is none."""
    counts: tuple[Ints, Ints, Ints]
    """Of every unit: how often the dump has it as written, in lower case, and capitalised."""

    @property
    def places(self) -> Ints:
        """Start and end of every span in the text, [spans, 2]."""
        found = self.found
        starts = self.units.starts[found.first] + found.trimmed
        return np.stack([starts, self.units.ends[found.first + found.length - 1]], axis=1)


class SpanFinder:
    """Finds the spans of a text with the mentions and the vocabulary of a corpus part."""

    def __init__(self, corpus: Part) -> None:
        self._sequences = SequenceIndex(corpus.path)
        self.pages = np.asarray(corpus.array("mentions.pages"))
        self.linked_pages = np.asarray(corpus.array("mentions.linked_pages"))
        index = StringIndex(corpus.path, "vocabulary")
        self._vocabulary = Vocabulary.of(index.take(np.arange(len(index))))
        self.num_words = len(index)
        self._counts = np.append(np.asarray(corpus.array("vocabulary.counts")), 0)

    def read(self, text: str) -> Read:
        units = read_units(text)
        runs = runs_of(units)
        known = [self._vocabulary.find(each) for each in (units.own, units.lower, units.title)]
        own, lower, title = (self._counts[each] for each in known)
        found = self._find(units, runs, lower, title)
        return Read(units, runs, found, known[0], (own, lower, title))

    def _find(self, units: Units, runs: Runs, lower_counts: Ints, title_counts: Ints) -> Found:
        is_headline = (
            units.is_upper | (units.is_capital & (units.num_characters == 1)) | (units.is_flat & units.is_lower)
        )
        is_tail = np.append(False, np.isin(units.code[:-1], APOSTROPHES)) & ~units.is_spaced  # the S of QUEEN'S
        is_small = is_tail | units.is_stop | (lower_counts > title_counts)
        is_cased = units.is_capital | units.is_lower
        first = np.where(is_headline, units.title, BREAK)
        later = np.where(
            is_headline, np.where(is_small, units.lower, units.title), np.where(is_cased, BREAK, units.own)
        )
        forms = [
            _keyed(self._match(units, units.own, units.own), 0),
            _keyed(_changed(self._match(units, first, later), units.own, first, later), 0),
            _keyed(_changed(self._match(units, units.lower, units.lower), units.own, units.lower, units.lower), 0),
        ]
        for num_letters, hashes in enumerate(units.prefixed, 1):
            key, row = _keyed(self._match(units, hashes, units.own), num_letters)
            forms[0] = np.append(forms[0][0], key), np.append(forms[0][1], row)
        keys = np.unique(np.concatenate([*(key for key, _ in forms), _run_keys(runs)]))
        rows = [np.full(len(keys), -1) for _ in forms]
        for column, (key, row) in zip(rows, forms, strict=True):
            column[keys.searchsorted(key)] = row
        places, trimmed = np.divmod(keys, MAX_PREFIX + 1)
        first_unit, length = np.divmod(places, MAX_UNITS + 1)
        found = Found(first_unit, length, trimmed, *rows)
        return found.where(self._is_plausible(found, units))

    def _match(self, units: Units, first: Hashes, later: Hashes) -> Occurrences:
        return self._sequences.find(first, later_hashes(later, units.is_spaced))

    def _is_plausible(self, found: Found, units: Units) -> Bools:
        """Leaves out strings without letters, and lower-case ones that are hardly ever links."""
        end = found.first + found.length
        is_letters = units.is_word & ~units.is_number
        has_letters = sums(is_letters, found.first, end) > 0
        is_marked = sums(is_letters & ~units.is_lower, found.first, end) > 0
        is_marked |= units.is_flat[found.first] & (found.headline >= 0)
        pages, linked = self.pages[found.own] * (found.own >= 0), self.linked_pages[found.own]
        is_linked = (found.own >= 0) & (linked + 0.2 >= LEAST_LINKED * (pages + 2))
        plausible: Bools = units.is_word[found.first] & has_letters & (is_marked | is_linked)
        return plausible


def _keyed(found: Occurrences, trimmed: int) -> tuple[Ints, Ints]:
    return (found.first * (MAX_UNITS + 1) + found.length) * (MAX_PREFIX + 1) + trimmed, found.row


def _changed(found: Occurrences, own: Hashes, first: Hashes, later: Hashes) -> Occurrences:
    """Matches whose form differs from the text. The others were already found as written."""
    num_changed = np.append(0, np.cumsum(later != own))
    is_changed = num_changed[found.first + found.length] > num_changed[found.first + 1]
    is_changed |= (first != own)[found.first]
    return Occurrences(found.first[is_changed], found.length[is_changed], found.row[is_changed])


def _run_keys(runs: Runs) -> Ints:
    """Up to MAX_RUN words of a run in a row."""
    words = np.flatnonzero(runs.run >= 0)
    keys = []
    for count in range(min(MAX_RUN, len(words))):
        first, last = words[: len(words) - count], words[count:]
        is_one = (runs.run[first] == runs.run[last]) & (last - first < MAX_UNITS)
        first, last = first[is_one], last[is_one]
        keys.append((first * (MAX_UNITS + 1) + last - first + 1) * (MAX_PREFIX + 1))
    return np.concatenate(keys) if keys else np.zeros(0, np.int64)
