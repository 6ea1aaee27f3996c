"""Which spans of a text may be mentions: everything that the mention table knows, and runs of capitalised words.

    as written     sequences of units that are mentions; in Hebrew and Arabic also without a prefix
    in usual case  the same for capitals (BANK OF ENGLAND) and for sentences without any capital (bank of england)
    in lower case  the same for the lower-cased text: how common words are told from names
    runs           up to four capitalised words in a row, known or not
    blocks         in Japanese and Chinese, up to four stretches of one script in a row, known or not: 社会 + システム

Spans overlap, and most of them are no mentions: that is for the model of `detection` to say.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeped_ray.corpus.occurrences import MAX_UNITS, Occurrences, SequenceIndex, later_hashes
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.linking.units import APOSTROPHE, BREAK, MAX_PREFIX, Runs, Units, read_units, runs_of
from deeped_ray.text import HAN_KIND, KATAKANA_KIND, WORD_KIND, Bools, Hashes, Ints, codes_of

MAX_RUN = 4
"""Words of a name that the mention table does not know."""
_DOTS = codes_of("・＝=.-‐")
"""What stands between the words of a name in katakana, or after the initials before it."""
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
        self._vocabulary = Vocabulary.read(index)
        self.num_words = len(index)
        self._counts = np.append(np.asarray(corpus.array("vocabulary.counts")), 0)

    def read(self, text: str) -> Read:
        units = read_units(text)
        runs = runs_of(units)
        known = self._vocabulary.find(np.concatenate([units.own, units.lower, units.title]))
        own, lower, title = np.split(self._counts[known], 3)
        found = self._find(units, runs, lower, title)
        return Read(units, runs, found, known[: len(own)], (own, lower, title))

    def _find(self, units: Units, runs: Runs, lower_counts: Ints, title_counts: Ints) -> Found:
        is_headline = (
            units.is_upper | (units.is_capital & (units.num_characters == 1)) | (units.is_flat & units.is_lower)
        )
        is_tail = np.append(False, units.sign[:-1] & APOSTROPHE > 0) & ~units.is_spaced  # the S of QUEEN'S
        is_small = is_tail | units.is_stop | (lower_counts > title_counts)
        is_cased = units.is_capital | units.is_lower
        first = np.where(is_headline, units.title, BREAK)
        later = np.where(
            is_headline, np.where(is_small, units.lower, units.title), np.where(is_cased, BREAK, units.own)
        )
        lower = np.where(units.is_capital, units.lower, BREAK)
        own, headline, lowered, *trimmed = self._match(
            units,
            [units.own, first, lower, *units.prefixed],
            [units.own, later, units.lower, *[units.own] * len(units.prefixed)],
        )
        forms = [_keyed(own, 0), _keyed(_changed(headline, units.own, first, later), 0), _keyed(lowered, 0)]
        for num_letters, found in enumerate(trimmed, 1):
            key, row = _keyed(found, num_letters)
            forms[0] = np.append(forms[0][0], key), np.append(forms[0][1], row)
        keys = np.unique(np.concatenate([*(key for key, _ in forms), _run_keys(runs), _block_keys(units)]))
        rows = [np.full(len(keys), -1) for _ in forms]
        for column, (key, row) in zip(rows, forms, strict=True):
            column[keys.searchsorted(key)] = row
        places, num_trimmed = np.divmod(keys, MAX_PREFIX + 1)
        first_unit, length = np.divmod(places, MAX_UNITS + 1)
        spans = Found(first_unit, length, num_trimmed, *rows)
        return spans.where(self._is_plausible(spans, units))

    def _match(self, units: Units, firsts: Sequence[Hashes], laters: Sequence[Hashes]) -> list[Occurrences]:
        """The mentions in several forms of a text, looked up together: they are laid end to end, with a break between."""
        end = np.array([BREAK])
        first = np.concatenate([part for each in firsts for part in (each, end)])
        later = np.concatenate([part for each in laters for part in (later_hashes(each, units.is_spaced), end)])
        found = self._sequences.find(first, later)
        form, place = np.divmod(found.first, len(units.starts) + 1)
        return [
            Occurrences(place[is_form], found.length[is_form], found.row[is_form])
            for is_form in (form == number for number in range(len(firsts)))
        ]

    def _is_plausible(self, found: Found, units: Units) -> Bools:
        """Leaves out strings without letters, and lower-case ones that are hardly ever links."""
        is_letters = units.is_word & ~units.is_number
        running = np.zeros((2, len(is_letters) + 1), np.int64)
        np.cumsum([is_letters, is_letters & ~units.is_lower], axis=1, out=running[:, 1:])
        has_letters, is_marked = running[:, found.first + found.length] > running[:, found.first]
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


def _block_keys(units: Units) -> Ints:
    """Up to MAX_RUN blocks in a row. A block is a stretch of Han, or of katakana with its dots, or a word beside them."""
    is_own = (units.script == KATAKANA_KIND) | (units.script == HAN_KIND)
    if not is_own.any():
        return np.zeros(0, np.int64)
    is_letter = is_own | (units.script == WORD_KIND)
    is_joined = np.append(False, ~units.is_spaced[1:])
    is_between = np.append(False, is_letter[:-1]) & np.append(is_letter[1:] & is_joined[1:], False) & is_joined
    is_dot = np.isin(units.code, _DOTS) & is_between
    is_member = is_letter | is_dot
    goes_on = np.append(False, is_member[:-1]) & is_member & is_joined
    # a dot has the script of the letter before it
    script = np.where(is_dot, np.append(0, units.script[:-1]), units.script)
    same = goes_on & np.append(False, script[1:] == script[:-1])
    run = np.cumsum(~goes_on)
    has_own = np.bincount(run, is_own) > 0
    firsts = np.flatnonzero(is_member & ~same & has_own[run])
    lasts = np.flatnonzero(is_member & ~np.append(same[1:], False) & has_own[run])
    keys = []
    for count in range(min(MAX_RUN, len(firsts))):
        first, last = firsts[: len(firsts) - count], lasts[count:]
        length = last - first + 1
        is_one = (run[first] == run[last]) & (length > 1) & (length <= MAX_UNITS)
        keys.append((first[is_one] * (MAX_UNITS + 1) + length[is_one]) * (MAX_PREFIX + 1))
    return np.concatenate(keys)
