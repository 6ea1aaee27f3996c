"""What speaks for a span: the columns that the detector's model reads, one row per span.

    edges        of the first and last unit, and of the units beside them: case, place in the sentence, how the dump and the
                 rest of the text write it
    counted      how often the dump has the string and links it, as written and in other case
    form         its length, and whether it goes on beyond its ends
    meant        what its candidates are, and how well the likeliest fit the words around it

Columns are numbers of any size: the model knows the mean and spread of each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.csr import Csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import numbers_of, read_mapped
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.spans import Found, Read, SpanFinder
from deeped_ray.linking.units import APOSTROPHE, BRACKET, COMMA, HYPHEN, Units
from deeped_ray.text import Bools, Hashes, Ints

Floats = npt.NDArray[np.float32]
NUM_FITTING = 3
"""Candidates by prior that are compared with the context."""
NUM_BESIDE = 13
"""Columns of units that are also read before and after a span."""
NEAR, FAR = 5, 25
"""Words on each side of a span that are its context."""
_SHARES = 16
"""Parts in which the words of all pieces are compared, with a pause between them."""


class Told(NamedTuple):
    """What the whole text tells about the units of a piece, by their lower-case form: how often it stands there ..."""

    as_name: Ints
    """... capitalised inside a sentence that has lower-case words too"""
    in_lower: Ints
    """... in lower case"""
    ends_longer: Ints
    """... as the last of several capitalised words"""
    begins_longer: Ints
    """... as the first of several"""


def tell(reads: Sequence[Read], pause: Pause = no_pause) -> list[Told]:
    """What the pieces of a text tell about each other."""
    if not reads:
        return []
    words, places, counts = [], [], []
    for read in reads:
        own, place = np.unique(read.units.lower, return_inverse=True)
        words.append(own)
        places.append(place)
        counts.append(np.stack([np.bincount(place, mark, len(own)) for mark in _marks(read)]))
        pause()
    # the words of one piece are distinct already
    totals = counts[0] if len(reads) == 1 else _summed(np.concatenate(words), np.concatenate(counts, axis=1), pause)
    borders = np.cumsum([len(own) for own in words])[:-1]
    return [Told(*total[:, place]) for total, place in zip(np.split(totals, borders, axis=1), places, strict=True)]


def _summed(words: Hashes, counts: npt.NDArray[np.float64], pause: Pause) -> npt.NDArray[np.float64]:
    """In each column the sum of all columns with the same word. By shares: a million words would take 0.1 s at once."""
    totals = np.empty_like(counts)
    share = words % np.uint64(_SHARES)
    for number in range(_SHARES):
        columns = np.flatnonzero(share == number)
        _, word = np.unique(words[columns], return_inverse=True)
        for row, count in zip(totals, counts, strict=True):
            row[columns] = np.bincount(word, count[columns])[word] if len(columns) else 0
        pause()
    return totals


def _marks(read: Read) -> tuple[Bools, Bools, Bools, Bools]:
    units, runs = read.units, read.runs
    is_long = (runs.size > 1) & ~units.is_upper
    return (
        units.is_capital & ~units.is_initial & ~units.is_upper,
        units.is_lower & ~units.is_flat,
        is_long & (runs.place == runs.size - 1),
        is_long & (runs.place == 0),
    )


class Vectors:
    """Word and entity vectors."""

    def __init__(self, words: Part, vectors: Part, *, num_corpus_words: int) -> None:
        self.words: Floats = np.asarray(words.array("vectors"))
        self.entities: Floats = np.asarray(vectors.array("vectors"))
        ids = np.asarray(words.array("corpus_ids"))
        self.word_rows = np.full(num_corpus_words + 1, -1, np.int64)
        """Of words of the corpus; the last row is for all others."""
        self.word_rows[ids] = np.arange(len(ids))


class Columns:
    """Looks up and computes the columns."""

    def __init__(self, corpus: Part, finder: SpanFinder, vectors: Vectors | None = None) -> None:
        self.finder, self._vectors = finder, vectors
        self._table = Csr(corpus, "mentions", ("entities", "priors"))
        entities = read_mapped(corpus.path / "entities.arrow")
        self._num_links, self._is_person = (numbers_of(entities[name]) for name in ("num_links", "is_person"))

    def of(self, read: Read, told: Told, pause: Pause = no_pause) -> Floats:
        """One row per span."""
        blocks = [_edges(read, _unit_columns(read, told))]
        for columns in (self._counted, _form, self._meant):
            pause()
            blocks.append(_lists(columns(read)))
        pause()
        return np.concatenate(blocks, axis=1)

    def best(self, rows: Ints) -> Ints:
        """The likeliest entity of rows of the mention table."""
        entities: Ints = self._table.columns[0][self._table.offsets[np.maximum(rows, 0)]].astype(np.int64)
        return entities

    def _counted(self, read: Read) -> list[npt.NDArray[Any]]:
        """How often the dump has and links the span, as written, in usual case and in lower case."""
        rows = np.stack(read.found[3:])  # [3, spans]
        is_known = rows >= 0
        pages, linked = self.finder.pages[rows] * is_known, self.finder.linked_pages[rows] * is_known
        names = pages[0] + pages[1]
        share = (names + 0.5) / (names + pages[2] + 1)
        return [*is_known, *np.log1p(pages), *_logit(linked, pages), *np.log1p(linked), share]

    def _meant(self, read: Read) -> list[npt.NDArray[Any]]:
        """What the table's candidates are, and how well the likeliest fit the words around the span."""
        found = read.found
        row = np.where(found.own >= 0, found.own, np.where(found.headline >= 0, found.headline, found.lower))
        is_known = row >= 0
        start = self._table.offsets[row]
        count = (self._table.offsets[row + 1] - start) * is_known
        entities, priors = self._table.columns
        ranks = np.arange(NUM_FITTING)
        is_there = ranks < count[:, None]  # [spans, candidates]
        cells = np.minimum(start[:, None] + ranks, len(priors) - 1)
        prior, entity = np.where(is_there, priors[cells], 0), np.where(is_there, entities[cells], -1).astype(np.int64)
        best = entity[:, 0]
        columns: list[npt.NDArray[Any]] = [
            prior[:, 0],
            np.log1p(count),
            np.log1p(self._num_links[best]) * is_known,
            self._is_person[best] * is_known,
        ]
        fits = self._fits(read, entity)
        expected = (fits * prior).sum(axis=2) / np.maximum(prior.sum(axis=1), 1e-6)
        return [*columns, *expected, *fits.max(axis=2)]

    def _fits(self, read: Read, entity: Ints) -> Floats:
        """Cosine of the candidates with the words near, far and in the whole piece. NaN if there are no vectors."""
        from deeped_ray.linking import kernels  # imports numba: half a second that look-ups do not need

        if self._vectors is None:
            return np.full((3, *entity.shape), np.nan, np.float32)
        words = self._vectors.word_rows[read.words]
        places = np.flatnonzero(words >= 0)
        vectors = self._vectors.words[words[places]]
        running = np.zeros((len(places) + 1, vectors.shape[1]), np.float32)
        np.cumsum(vectors, axis=0, out=running[1:])
        left = places.searchsorted(read.found.first)
        right = places.searchsorted(read.found.first + read.found.length)
        sizes = np.array([NEAR, FAR, len(places)])
        fits = np.zeros((len(sizes), *entity.shape), np.float32)
        kernels.context_fits(running, left, right, sizes, self._vectors.entities, entity, fits)
        return fits


def _lists(columns: Sequence[npt.NDArray[Any]]) -> Floats:
    block = np.empty((len(columns), len(columns[0])), np.float32)
    for row, column in zip(block, columns, strict=True):
        row[:] = column
    return block.T


def _unit_columns(read: Read, told: Told) -> Floats:
    """What is known of every unit, [units + 1, columns]. The last row is for what is not there: before and after the text."""
    units, runs = read.units, read.runs
    own, lower, title = read.counts
    num_sentences = int(units.sentence[-1]) + 1
    words, capitals, uppers = (
        np.bincount(units.sentence, each, num_sentences)[units.sentence]
        for each in (units.is_word, units.is_capital, units.is_upper)
    )
    elsewhere = (np.log1p(total - mark) for total, mark in zip(told, _marks(read), strict=True))
    has_others = words > 1
    beside = [  # also read before and after a span
        units.is_word,
        units.is_number,
        units.is_capital,
        units.is_lower,
        units.is_upper,
        units.is_stop,
        units.num_characters == 1,
        units.sign & APOSTROPHE > 0,
        units.sign & BRACKET > 0,
        units.sign & COMMA > 0,
        np.log1p(own) * units.is_word,
        np.log((title + 0.5) / (lower + 0.5)) * units.is_word,
        units.is_initial,
    ]
    assert len(beside) == NUM_BESIDE
    inside = [
        units.is_line_start,
        units.is_flat,
        np.log1p(lower),
        *elsewhere,
        runs.place > 0,
        (runs.run >= 0) & (runs.place < runs.size - 1),
        runs.size,
        np.log1p(words),
        has_others * (capitals - units.is_capital) / np.maximum(words - 1, 1),
        has_others * (uppers - units.is_upper) / np.maximum(words - 1, 1),
    ]
    table = np.zeros((len(beside) + len(inside), len(own) + 1), np.float32)
    for row, column in zip(table, (*beside, *inside), strict=True):
        row[:-1] = column
    return np.ascontiguousarray(table.T)


def _edges(read: Read, units: Floats) -> Floats:
    """The units at both ends of a span, the mean of all its units, and those before and after it in the sentence."""
    found, sentence = read.found, read.units.sentence
    first, end = found.first, found.first + found.length
    n = len(sentence)
    before, after = np.maximum(first - 1, 0), np.minimum(end, n - 1)
    before = np.where((first > 0) & (sentence[before] == sentence[first]), before, n)
    after = np.where((end < n) & (sentence[after] == sentence[end - 1]), after, n)
    running = np.zeros((n + 2, NUM_BESIDE), np.float32)
    np.cumsum(units[:, :NUM_BESIDE], axis=0, out=running[1:])
    mean = (running[end] - running[first]) / found.length[:, None].astype(np.float32)
    beside = units[:, :NUM_BESIDE]
    return np.concatenate([units[first], units[end - 1], mean, beside[before], beside[after]], axis=1)


def _form(read: Read) -> list[npt.NDArray[Any]]:
    """How long the span is, and whether it goes on beyond its ends."""
    units, found = read.units, read.found
    first, last, end = found.first, found.first + found.length - 1, found.first + found.length
    num_words = np.append(0, np.cumsum(units.is_word))
    num_words = num_words[end] - num_words[first]
    num_characters = units.ends[last] - units.starts[first] - found.trimmed
    return [
        num_words == 1,
        num_words == 2,
        num_words,
        np.log(num_characters),
        found.trimmed,
        *_joined(units, first, -1),
        *_joined(units, last, 1),
        *_nested(found, len(units.starts)),
    ]


def _joined(units: Units, edge: Ints, step: int) -> tuple[Bools, Bools]:
    """Whether a hyphen leads to another word beside the span, and whether its script goes on there without a space."""
    n = len(units.starts)
    beside, beyond = edge + step, edge + 2 * step
    is_there, is_beyond = (beside >= 0) & (beside < n), (beyond >= 0) & (beyond < n)
    beside, beyond = np.clip(beside, 0, n - 1), np.clip(beyond, 0, n - 1)
    is_joined = is_there & ~units.is_spaced[np.maximum(edge, beside)]
    is_hyphen = is_joined & (units.sign[beside] & HYPHEN > 0) & is_beyond & units.is_word[beyond]
    return is_hyphen, is_joined & units.is_word[beside] & (units.script[beside] == units.script[edge])


def _nested(found: Found, num_units: int) -> tuple[Bools, Bools]:
    """Whether a span lies in a longer one that the table knows, and whether it begins where a longer one does."""
    is_long = (found.length > 1) & ((found.own >= 0) | (found.headline >= 0))
    reach = np.zeros(num_units + 1, np.int64)
    end = found.first + found.length
    np.maximum.at(reach, found.first[is_long] + 1, end[is_long])
    so_far = np.maximum.accumulate(reach)
    begins = reach[found.first + 1] > end
    return (so_far[found.first] >= end) | begins, begins


def _logit(linked: npt.NDArray[Any], pages: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Of the link probability. A string that never occurs in running text counts as linked once in ten times."""
    odds: npt.NDArray[np.float64] = np.log((linked + 0.2) / (pages - linked + 1.8))
    return odds
