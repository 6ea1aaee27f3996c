"""Answers in columns: what the linker found out about the mentions of a document, without a Python object for a candidate.

    offsets        candidates of row i are [offsets[i], offsets[i + 1]), the best first
    entity         number in the catalogue
    numbers        prior, local score, coherence, score and probability of each candidate, [5, candidates]
    source         where each candidate came from
    none           probability that none of the candidates is right, a number for each row
    attended       the same for context words: offsets, words, weights
    support        and for supporters: offsets, mentions, weights

Rows come as windows were linked. `rows` says where each mention of the document stands among them. `Prediction` objects are
made when they are asked for.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.linking import answer_kernels as kernels
from deeped_ray.linking.certainty import Certain
from deeped_ray.linking.encoding import EncodedGroup, Ints
from deeped_ray.linking.groups import Group
from deeped_ray.linking.layout_kernels import WORDS
from deeped_ray.linking.retrieval import SOURCES
from deeped_ray.linking.scoring import AllScored, arrays_of
from deeped_ray.types import Candidate, Document, Prediction

NOTHING_FITS = "entities are known by this name, but none fits: the probability of none is {:.3f}"
BELOW = "the best candidate has a probability of {:.3f}, below the threshold {}"
Doubles = npt.NDArray[np.float64]
PRIOR, LOCAL, COHERENCE, SCORE, PROBABILITY = range(5)
SUPPORTERS = 5
"""Other mentions that a prediction lists as support, at most."""
_NO_WORDS = np.zeros(0, np.int64)


class Weighed(NamedTuple):
    """Lists of weighed things, one after the other."""

    offsets: Ints
    what: Ints
    weight: Doubles

    def row(self, number: int) -> tuple[list[int], list[float]]:
        start, end = self.offsets[number], self.offsets[number + 1]
        return self.what[start:end].tolist(), self.weight[start:end].tolist()


class Columns(NamedTuple):
    """Rows of mentions that were linked jointly."""

    mention: Ints
    """Places in the document."""
    offsets: Ints
    entity: Ints
    numbers: Doubles
    source: npt.NDArray[np.int8]
    none: Doubles
    words: Ints
    """Rows of word vectors, to which `attended` refers."""
    attended: Weighed | None
    support: Weighed | None
    """By places in the document."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What names the numbers of the columns."""

    catalogue: Catalogue
    words_of: Any
    """Rows of word vectors -> words."""
    unknown: str
    """Why a mention has no candidates."""
    has_coherence: bool
    as_json: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """What never changes of an entity, remembered by `answer_json`: how it begins and ends."""


@dataclass(frozen=True, eq=False)
class Answers(Sequence[Prediction]):
    """The answers for all mentions of a document, in their order. A prediction is made when it is asked for."""

    document: Document
    windows: Sequence[Columns]
    knowledge: Knowledge
    threshold: float = 0.0
    """An answer of a lower probability is none."""
    top: int | None = None
    """Candidates that a prediction has, at most; None: all. It has the best one in any case."""

    def at_least(self, threshold: float, *, top: int | None = None) -> "Answers":
        return replace(self, threshold=threshold, top=top)

    @functools.cached_property
    def rows(self) -> list[tuple[int, int]]:
        """Window and row of every mention."""
        places: list[tuple[int, int]] = [(0, 0)] * len(self.document.mentions)
        for number, window in enumerate(self.windows):
            for row, mention in enumerate(window.mention.tolist()):
                places[mention] = number, row
        return places

    @functools.cached_property
    def reasons(self) -> list[str | None]:
        """Why each mention has no entity; None where it has one."""
        found: list[str | None] = [None] * len(self.document.mentions)
        for window in self.windows:
            best = [-1.0] * len(window.none)
            for row, (start, end) in enumerate(itertools.pairwise(window.offsets.tolist())):
                best[row] = float(window.numbers[PROBABILITY, start]) if end > start else -1.0
            for mention, none, probability in zip(window.mention.tolist(), window.none.tolist(), best, strict=True):
                found[mention] = reason_of(none, probability, self.knowledge.unknown, self.threshold)
        return found

    def __len__(self) -> int:
        return len(self.document.mentions)

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> list[Prediction]: ...
    def __getitem__(self, place: int | slice) -> Prediction | list[Prediction]:
        return self._predictions[place]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._predictions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._predictions == [*other]

    __hash__ = None  # type: ignore[assignment]

    @functools.cached_property
    def _predictions(self) -> list[Prediction]:
        made = [_Made(window, self.knowledge, self.top) for window in self.windows]
        found = []
        for mention, reason, (number, row) in zip(self.document.mentions, self.reasons, self.rows, strict=True):
            span = mention.start, mention.end, self.document.surface(mention)
            candidates, attended, support = made[number].row(row)
            none = made[number].none[row]
            found.append(Prediction(*span, candidates, attended, support, reason, none))
        return found


class _Made:
    """Columns as Python's objects: lists, since reading single numbers from arrays is slow."""

    def __init__(self, columns: Columns, knowledge: Knowledge, top: int | None) -> None:
        self.none: list[float] = columns.none.tolist()
        self._offsets, chosen = _first(columns.offsets, top)
        self._attended, self._support = columns.attended, columns.support
        catalogue, entities = knowledge.catalogue, columns.entity[chosen]
        titles, page_ids = catalogue.titles(entities), catalogue.page_ids[entities].tolist()
        urls = [catalogue.url(title) for title in titles]
        prior, local, coherence, score, probability = columns.numbers[:, chosen].tolist()
        beliefs = coherence if knowledge.has_coherence else [None] * len(titles)
        sources = [SOURCES[source] for source in columns.source[chosen].tolist()]
        ids = catalogue.wikidata.of(entities)
        rows = zip(titles, page_ids, urls, prior, local, beliefs, score, probability, sources, ids, strict=True)
        self._candidates = [Candidate(*row) for row in rows]
        self._words = knowledge.words_of(columns.words) if columns.attended is not None else []

    def row(
        self, number: int
    ) -> tuple[tuple[Candidate, ...], tuple[tuple[str, float], ...], tuple[tuple[int, float], ...]]:
        """Candidates, attended words and support of a mention."""
        words, weights = self._attended.row(number) if self._attended is not None else ([], [])
        return (
            tuple(self._candidates[self._offsets[number] : self._offsets[number + 1]]),
            tuple((self._words[word], weight) for word, weight in zip(words, weights, strict=True)),
            tuple(zip(*self._support.row(number), strict=True)) if self._support is not None else (),
        )


def _first(offsets: Ints, top: int | None) -> tuple[list[int], slice | Ints]:
    """The first `top` of each row, one at least: their offsets, and which they are."""
    if top is None:
        return offsets.tolist(), slice(None)
    counts = np.diff(offsets)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return [0, *np.cumsum(np.minimum(counts, max(top, 1))).tolist()], np.flatnonzero(within < max(top, 1))


def reason_of(none: float, best: float, unknown: str, threshold: float = 0.0) -> str | None:
    """Why a mention has no entity. The best candidate is the answer, unless it is more likely that none is right.

    `best` is its probability, below 0 if there is no candidate.
    """
    if best < 0:
        return unknown
    if none > best:
        return NOTHING_FITS.format(none)
    return None if best >= threshold else BELOW.format(best, threshold)


# -- making


def columns_of(group: Group, encoded: EncodedGroup, scored: AllScored, certain: Certain) -> list[Columns]:
    """The columns of every window."""
    scores = scored.psi, scored.belief, scored.rho, certain.candidates
    found = kernels.answer_all(
        *(group.is_answered, arrays_of(encoded), encoded.sources, scores, certain.none),
        *((scored.beta, scored.support), scored.explains, SUPPORTERS),
    )
    bounds, offsets, entity, numbers, source, none, attended, support = found
    all_bounds, places, words = bounds.tolist(), group.places, encoded.layout[:, WORDS].tolist()
    windows = []
    for w, (start, end) in enumerate(itertools.pairwise(group.bounds.tolist())):
        (row, at, word, other), (row_end, at_end, word_end, other_end) = all_bounds[w : w + 2]
        own, cells, mentions = slice(row + w, row_end + w + 1), slice(at, at_end), places[start:end]
        heaviest, strongest = None, None
        if scored.explains:
            heaviest = Weighed(attended[0][own], attended[1][word:word_end], attended[2][word:word_end])
        if len(scored.support):
            others = mentions[support[1][other:other_end]]
            strongest = Weighed(support[0][own], others, support[2][other:other_end])
        windows.append(
            Columns(
                *(mentions[group.is_answered[start:end]], offsets[own], entity[cells]),
                *(numbers[5 * at : 5 * at_end].reshape(5, -1), source[cells], none[row:row_end]),
                *(encoded.words[words[w] : words[w + 1]] if scored.explains else _NO_WORDS, heaviest, strongest),
            )
        )
    return windows
