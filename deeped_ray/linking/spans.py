"""Which spans of a text may be mentions: everything that the mention table knows, and runs of capitalised words.

    as written     sequences of units that are mentions; in Hebrew and Arabic also without a prefix
    in usual case  the same for capitals (BANK OF ENGLAND) and for sentences without any capital (bank of england)
    in lower case  the same for the lower-cased text: how common words are told from names
    runs           up to four capitalised words in a row, known or not
    blocks         in Japanese and Chinese, up to four stretches of one script in a row, known or not: 社会 + システム

Spans overlap, and most of them are no mentions: that is for the model of `detection` to say.
"""

from typing import NamedTuple

import numpy as np

from deeped_ray.corpus.occurrences import MAX_UNITS, SequenceIndex
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.linking.hash_kernels import rows_of_hashes
from deeped_ray.linking.span_kernels import find_spans
from deeped_ray.linking.unit_kernels import APOSTROPHE
from deeped_ray.linking.units import BREAK, MAX_PREFIX, Runs, Units, read_units, runs_of
from deeped_ray.text import HAN_KIND, KATAKANA_KIND, WORD_KIND, Bools, Ints, codes_of

MAX_RUN = 4
"""Words of a name that the mention table does not know."""
_DOTS = codes_of("・＝=.-‐")
"""What stands between the words of a name in katakana, or after the initials before it."""
_SPANS_PER_UNIT = 4
"""There is room for so many. Texts have one."""
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
        known = np.empty((3, len(units.starts)), np.int64)
        for row, hashes in zip(known, (units.own, units.lower, units.title), strict=True):
            rows_of_hashes(hashes, *self._vocabulary, row)
        own, lower, title = self._counts[known]
        return Read(units, runs, self._find(units, runs, lower, title), known[0], (own, lower, title))

    def _find(self, units: Units, runs: Runs, lower_counts: Ints, title_counts: Ints) -> Found:
        is_headline = (
            units.is_upper | (units.is_capital & (units.num_characters == 1)) | (units.is_flat & units.is_lower)
        )
        is_tail = np.append(False, units.sign[:-1] & APOSTROPHE > 0) & ~units.is_spaced  # the S of QUEEN'S
        is_small = is_tail | units.is_stop | (lower_counts > title_counts)
        given = (
            (units.own, units.lower, units.title),
            units.prefixed,
            (units.is_spaced, units.is_word, units.is_number, units.is_capital, units.is_lower, units.is_flat),
            (is_headline, is_small, units.is_capital | units.is_lower),
            tuple(runs),
            np.sort(_block_keys(units)) // (MAX_PREFIX + 1),
            self._sequences.tables,
            (self.pages, self.linked_pages),
            (MAX_UNITS, MAX_RUN, MAX_PREFIX, LEAST_LINKED, BREAK),
        )
        found = np.empty((len(Found._fields), _SPANS_PER_UNIT * len(units.starts)), np.int64)
        number = find_spans(*given, found)
        if number > found.shape[1]:  # many of a few units: it happens in made-up texts only
            found = np.empty((len(Found._fields), number), np.int64)
            find_spans(*given, found)
        return Found(*found[:, :number])


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
