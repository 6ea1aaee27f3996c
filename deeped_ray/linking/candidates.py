"""Section 6: which entities a mention may mean, and which context words speak about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.text_kernels import UNKNOWN, find_words, remember
from deeped_ray.text import Ints, character_kinds, codes_of
from deeped_ray.types import DeepEdError, Mention, require_at_least

_WORDS_PER_PAUSE = 2000
MAX_KEPT = 127


@dataclass(frozen=True, kw_only=True)
class CandidateConfig:
    """Candidates and contexts. The paper's: `sources: prior`, `evidence: prior`."""

    context_words: Annotated[int, "K: context words with a vector, half on each side of the mention"] = 100
    first_candidates: Annotated[int, "entities taken by prior before the context is looked at"] = 30
    sources: Annotated[
        Literal["all", "prior"],
        "where candidates come from: p(e|m), names, context and document, or p(e|m) alone (paper)",
    ] = "all"
    kept_by_prior: Annotated[int, "how many are kept by prior"] = 4
    kept_by_context: Annotated[
        int | None,
        "and how many more: by name, context and document together, 8 unless set;"
        " with `sources: prior` by similarity to the averaged context, 3 unless set (paper)",
    ] = None
    evidence: Annotated[
        Literal["all", "prior"],
        "what f is given beside the belief: p(e|m), names, titles, context, document and links, or p(e|m) alone (paper)",
    ] = "all"
    coreference: Annotated[
        Literal["words", "substring", "none"],
        "give a person's short name the candidates of the full name: matched by words (paper) or by substring (deep-ed)",
    ] = "words"

    def __post_init__(self) -> None:
        require_at_least(2, self, "context_words")
        if self.kept_by_context is None:
            object.__setattr__(self, "kept_by_context", 3 if self.sources == "prior" else 8)
        require_at_least(0, self, "kept_by_prior", "kept_by_context")
        if not 1 <= self.num_candidates <= self.first_candidates:
            raise DeepEdError("`kept_by_prior` plus `kept_by_context` must be 1 to `first_candidates`.")
        if self.num_candidates > MAX_KEPT:  # the kernels count candidates in a byte
            raise DeepEdError(f"`kept_by_prior` plus `kept_by_context` must be at most {MAX_KEPT}.")

    @property
    def retrieves(self) -> bool:
        """Whether more than the prior is asked."""
        return "all" in (self.sources, self.evidence)

    @property
    def num_candidates(self) -> int:
        """S."""
        assert self.kept_by_context is not None
        return self.kept_by_prior + self.kept_by_context


class KnownWords:
    """The words of a text that have a vector, with their places: the supply of all its contexts."""

    def __init__(self, text: str, words: Words, pause: Pause = no_pause) -> None:
        codes = codes_of(text)
        most = len(codes)
        starts, ends, rows = (np.empty(most, np.int64) for _ in range(3))
        hashes = np.empty(most, np.uint64)
        number = find_words(codes, character_kinds(), words.remembered, starts, ends, hashes, rows)
        pause()
        unknown = np.flatnonzero(rows[:number] == UNKNOWN)
        for first in range(0, len(unknown), _WORDS_PER_PAUSE):
            places = unknown[first : first + _WORDS_PER_PAUSE]
            spans = zip(starts[places].tolist(), ends[places].tolist(), strict=True)
            rows[places] = words.find_all([text[start:end] for start, end in spans])
            remember(words.remembered, hashes[places], rows[places])
            pause()
        known = np.flatnonzero(rows[:number] >= 0)
        self.rows: Ints = rows[known]
        self._starts, self._ends = starts[known], ends[known]

    def first_from(self, starts: Sequence[int]) -> Ints:
        """Where the words from some places of the text on begin among `rows`."""
        found: Ints = self._starts.searchsorted(starts)
        return found

    def contexts(self, spans: Ints, *, num_words: int, bounds: Ints | None = None) -> Ints:
        """For every mention where its context stands among `rows`, [n, 4]: start and end of the left side, and of the right.

        `spans` are start and end of each mention, `bounds` those of its document among `rows`.
        """
        half = num_words // 2
        low, high = (0, len(self.rows)) if bounds is None else bounds.T
        left, right = self._ends.searchsorted(spans[:, 0], "right"), self._starts.searchsorted(spans[:, 1])
        sides = (np.maximum(left - half, low), left, right, np.minimum(right + half, high))
        return np.stack(sides, axis=1).astype(np.int64)

    def around(self, mention: Mention, *, num_words: int) -> Ints:
        """Rows of the nearest known words, `num_words // 2` at most on each side, the mention itself left out."""
        return self.between(*self.contexts(np.array([[mention.start, mention.end]]), num_words=num_words))

    def between(self, sides: Ints) -> Ints:
        """Rows of the words of a context."""
        start, left, right, end = sides.tolist()
        return np.concatenate([self.rows[start:left], self.rows[right:end]])


def select_candidates(
    firsts: Sequence[Sequence[PriorCandidate]],
    contexts: Sequence[npt.NDArray[np.int64]],
    word_vectors: npt.NDArray[np.float32],
    entity_vectors: Layers | npt.NDArray[np.float32],
    config: CandidateConfig,
) -> list[list[PriorCandidate]]:
    """For every mention the best by prior, then the best of the rest by context, filled up by prior to S."""
    crowded = [i for i, first in enumerate(firsts) if len(first) > config.num_candidates]
    entities = [candidate.entity_id for i in crowded for candidate in firsts[i]]
    averages = np.zeros((len(crowded), entity_vectors.shape[1]), np.float32)
    for row, i in enumerate(crowded):
        averages[row] = word_vectors[contexts[i]].sum(axis=0)
    mention_of = np.repeat(np.arange(len(crowded)), [len(firsts[i]) for i in crowded])
    similarity = np.einsum("fd,fd->f", entity_vectors[entities], averages[mention_of])
    kept = [list(first) for first in firsts]
    start = 0
    for i in crowded:
        end = start + len(firsts[i])
        kept[i] = _select(firsts[i], similarity[start:end], config)
        start = end
    return kept


def _select(
    first: Sequence[PriorCandidate], similarity: npt.NDArray[np.float32], config: CandidateConfig
) -> list[PriorCandidate]:
    # Differs from the paper, in whose code the two choices overlap: here the context chooses among the rest
    rest = config.kept_by_prior + np.argsort(-similarity[config.kept_by_prior :], kind="stable")
    chosen = [*range(config.kept_by_prior), *rest[: config.kept_by_context].tolist()]
    return [first[row] for row in sorted(chosen)]
