"""What speaks for a span: the columns that the detector's model reads, one row per span.

    counted      how often the dump has the string and links it, as written and in other case; how it writes its words
    form         length, case, place in the sentence
    beside       what stands before and after it; whether it is part of a longer one
    elsewhere    how its words are written in the rest of the text
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
from deeped_ray.linking.spans import Found, Read, SpanFinder
from deeped_ray.linking.units import APOSTROPHES, HYPHENS, sums
from deeped_ray.text import Bools, Ints

Floats = npt.NDArray[np.float32]
NUM_FITTING = 3
"""Candidates by prior that are compared with the context."""
NEAR, FAR = 5, 25
"""Words on each side of a span that are its context."""


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


def tell(reads: Sequence[Read]) -> list[Told]:
    """What the pieces of a text tell about each other."""
    if not reads:
        return []
    hashes = np.concatenate([read.units.lower for read in reads])
    _, number = np.unique(hashes, return_inverse=True)
    marks = [np.concatenate(each) for each in zip(*map(_marks, reads), strict=True)]
    totals = [np.bincount(number, mark)[number] for mark in marks]
    borders = np.cumsum([len(read.units.starts) for read in reads])[:-1]
    return [Told(*each) for each in zip(*(np.split(total, borders) for total in totals), strict=True)]


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

    def of(self, read: Read, told: Told) -> Floats:
        """One row per span."""
        columns = [*self._counted(read), *_form(read), *_beside(read), *_elsewhere(read, told), *self._meant(read)]
        return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)

    def _counted(self, read: Read) -> list[npt.NDArray[Any]]:
        """How often the dump has and links the span, in each form; how often it has its words in each form."""
        found = read.found
        first, last, end = found.first, found.first + found.length - 1, found.first + found.length
        columns: list[npt.NDArray[Any]] = []
        for row in (found.own, found.headline, found.lower):
            is_known = row >= 0
            pages, linked = self.finder.pages[row] * is_known, self.finder.linked_pages[row] * is_known
            columns += [is_known, np.log1p(pages), _logit(linked, pages), np.log1p(linked)]
        names = sum(self.finder.pages[row] * (row >= 0) for row in (found.own, found.headline))
        lower = self.finder.pages[found.lower] * (found.lower >= 0)
        columns += [(names + 0.5) / (names + lower + 1)]
        own, low, title = read.counts
        share = np.log((title + 0.5) / (low + 0.5))
        log_lower, log_own = np.log1p(low), np.log1p(own)
        num_words = np.maximum(sums(read.units.is_word, first, end), 1)
        columns += [each[edge] for each in (share, log_lower, log_own) for edge in (first, last)]
        columns += [sums(each * read.units.is_word, first, end) / num_words for each in (share, log_own)]
        return columns

    def _meant(self, read: Read) -> list[npt.NDArray[Any]]:
        """What the table's candidates are, and how well the likeliest fit the words around the span."""
        found = read.found
        row = np.where(found.own >= 0, found.own, np.where(found.headline >= 0, found.headline, found.lower))
        is_known = row >= 0
        start = self._table.offsets[row] * is_known
        count = (self._table.offsets[row + 1] - start) * is_known
        entities, priors = self._table.columns
        prior = np.stack(
            [np.where(count > k, priors[np.minimum(start + k, len(priors) - 1)], 0) for k in range(NUM_FITTING)], axis=1
        )
        entity = np.stack(
            [np.where(count > k, entities[np.minimum(start + k, len(entities) - 1)], -1) for k in range(NUM_FITTING)],
            axis=1,
        )
        best = entity[:, 0]
        columns: list[npt.NDArray[Any]] = [
            prior[:, 0],
            np.log1p(count),
            np.log1p(self._num_links[best]) * is_known,
            self._is_person[best] * is_known,
        ]
        fits = self._fits(read, entity)
        expected = [(fit * prior).sum(axis=1) / np.maximum(prior.sum(axis=1), 1e-6) for fit in fits]
        return [*columns, *expected, *(fit.max(axis=1) for fit in fits)]

    def _fits(self, read: Read, entity: Ints) -> list[Floats]:
        """Cosine of the candidates with the words near, far and in the whole piece. NaN if there are no vectors."""
        n = len(entity)
        if self._vectors is None:
            return [np.full((n, NUM_FITTING), np.nan, np.float32)] * 3
        words = self._vectors.word_rows[read.words]
        places = np.flatnonzero(words >= 0)
        vectors = self._vectors.words[words[places]]
        running = np.zeros((len(places) + 1, vectors.shape[1]), np.float32)
        np.cumsum(vectors, axis=0, out=running[1:])
        left = places.searchsorted(read.found.first)
        right = places.searchsorted(read.found.first + read.found.length)
        span, place = np.nonzero(entity >= 0)
        entities = self._vectors.entities[entity[span, place]]
        around = [running[left] - running[np.maximum(left - size, 0)] for size in (NEAR, FAR)]
        around = [
            before + running[np.minimum(right + size, len(places))] - running[right]
            for before, size in zip(around, (NEAR, FAR), strict=True)
        ]
        fits = []
        for context in (*around, running[-1] - (running[right] - running[left])):
            norm = np.maximum(np.sqrt(np.einsum("nd,nd->n", context, context)), 1e-3)
            fit = np.zeros((n, NUM_FITTING), np.float32)
            fit[span, place] = np.einsum("nd,nd->n", entities, context[span]) / norm[span]
            fits.append(fit)
        return fits


def _form(read: Read) -> list[npt.NDArray[Any]]:
    """How the span is written, and where in its sentence it stands."""
    units, found = read.units, read.found
    first, last, end = found.first, found.first + found.length - 1, found.first + found.length
    num_words = sums(units.is_word, first, end)
    num_characters = units.ends[last] - units.starts[first] - found.trimmed
    num_sentences = int(units.sentence[-1]) + 1 if len(units.sentence) else 0
    words, capitals, uppers = (
        np.bincount(units.sentence, each, num_sentences)[units.sentence[first]] if num_sentences else np.zeros(0)
        for each in (units.is_word, units.is_capital, units.is_upper)
    )
    is_caseless = units.is_word & ~units.is_capital & ~units.is_lower & ~units.is_number
    return [
        num_words == 1,
        num_words == 2,
        num_words,
        np.log(num_characters),
        units.num_characters[first] == 1,
        units.is_capital[first],
        units.is_capital[last],
        units.is_lower[last],
        sums(units.is_lower, first, end) == 0,
        units.is_upper[first],
        sums(units.is_number, first, end) > 0,
        is_caseless[first],
        ~units.is_word[last],
        sums(units.is_stop, first, end) == num_words,
        units.is_stop[first],
        units.is_initial[first],
        units.is_line_start[first],
        units.is_flat[first],
        np.log1p(words),
        (capitals - sums(units.is_capital, first, end) + 0.5) / (np.maximum(words - num_words, 0) + 1),
        (uppers - sums(units.is_upper, first, end) + 0.5) / (np.maximum(words - num_words, 0) + 1),
        (capitals == words) & (words == num_words),
        found.trimmed,
    ]


def _beside(read: Read) -> list[npt.NDArray[Any]]:
    """What stands before and after the span, and whether it is part of a longer one."""
    units, runs, found = read.units, read.runs, read.found
    first, last, end = found.first, found.first + found.length - 1, found.first + found.length
    n = len(units.starts)
    columns: list[npt.NDArray[Any]] = []
    for beside, beyond, edge, joint in ((first - 1, first - 2, first, first), (end, end + 1, last, end)):
        is_there = (beside >= 0) & (beside < n)
        at, further = np.clip(beside, 0, n - 1), np.clip(beyond, 0, n - 1)
        is_joined = is_there & ~units.is_spaced[np.clip(joint, 0, n - 1)]
        is_same = is_there & (units.sentence[at] == units.sentence[edge])
        code = units.code[at]
        columns += [
            is_same & units.is_capital[at] & ~units.is_upper[at],
            is_same & units.is_upper[at],
            is_same & units.is_lower[at],
            is_same & units.is_number[at],
            is_same & units.is_stop[at],
            is_joined & np.isin(code, HYPHENS) & units.is_word[further],
            is_there & np.isin(code, APOSTROPHES),
            is_there & ((code == ord("(")) | (code == ord(")"))),
            is_there & (code == ord(",")),
            is_there & ~units.is_word[at] & is_same,
            is_joined & (units.script[at] == units.script[edge]) & units.is_word[at],
            is_same * (np.log1p(read.counts[0][at]) - 5) * units.is_word[at],
            is_same * np.log((read.counts[2][at] + 0.5) / (read.counts[1][at] + 0.5)) * units.is_word[at],
        ]
    in_run = runs.run[first] >= 0
    columns += [
        in_run & (runs.place[first] > 0),
        (runs.run[last] >= 0) & (runs.place[last] < runs.size[last] - 1),
        runs.size[first],
        *_nested(found, n),
    ]
    return columns


def _nested(found: Found, num_units: int) -> tuple[Bools, Bools]:
    """Whether a span lies in a longer one that the table knows, and whether it begins where a longer one does."""
    is_long = (found.length > 1) & ((found.own >= 0) | (found.headline >= 0))
    reach = np.zeros(num_units + 1, np.int64)
    end = found.first + found.length
    np.maximum.at(reach, found.first[is_long] + 1, end[is_long])
    so_far = np.maximum.accumulate(reach)
    begins = reach[found.first + 1] > end
    return (so_far[found.first] >= end) | begins, begins


def _elsewhere(read: Read, told: Told) -> list[npt.NDArray[Any]]:
    """How the first and last word of the span are written elsewhere in the text."""
    found = read.found
    first, last = found.first, found.first + found.length - 1
    marks = _marks(read)
    is_single = found.length == 1
    columns: list[npt.NDArray[Any]] = []
    for total, mark in zip(told, marks, strict=True):
        others = np.log1p(total - mark)
        columns += [others[first], others[last], is_single * others[first]]
    return columns


def _logit(linked: Ints, pages: Ints) -> npt.NDArray[np.float64]:
    """Of the link probability. A string that never occurs in running text counts as linked once in ten times."""
    odds: npt.NDArray[np.float64] = np.log((linked + 0.2) / (pages - linked + 1.8))
    return odds
