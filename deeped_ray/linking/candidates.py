"""Section 6: which entities a mention may mean, and which context words speak about it."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.words import Words
from deeped_ray.text import tokenize
from deeped_ray.types import DeepEdError, Mention


@dataclass(frozen=True, kw_only=True)
class CandidateConfig:
    """Candidates and contexts; the paper's values."""

    context_words: Annotated[int, "K: context words with a vector, half on each side of the mention"] = 100
    first_candidates: Annotated[int, "entities taken by prior before the context is looked at"] = 30
    kept_by_prior: Annotated[int, "of these, how many are kept by prior"] = 4
    kept_by_context: Annotated[int, "and how many more by similarity to the averaged context"] = 3

    def __post_init__(self) -> None:
        if self.context_words < 2 or self.num_candidates < 1 or min(self.kept_by_prior, self.kept_by_context) < 0:
            raise DeepEdError("--context-words must be at least 2 and at least one candidate must be kept.")
        if self.first_candidates < self.num_candidates:
            raise DeepEdError("--first-candidates must be at least --kept-by-prior plus --kept-by-context.")

    @property
    def num_candidates(self) -> int:
        """S."""
        return self.kept_by_prior + self.kept_by_context


class KnownWords:
    """The words of a text that have a vector, with their places: the supply of all its contexts."""

    def __init__(self, text: str, words: Words) -> None:
        found = [(token, words.find(token.word)) for token in tokenize(text)]
        known = [(token, row) for token, row in found if row is not None]
        self._starts = [token.start for token, _ in known]
        self._ends = [token.end for token, _ in known]
        self._rows = [row for _, row in known]

    def around(self, mention: Mention, *, num_words: int) -> list[int]:
        """Rows of the nearest known words, `num_words // 2` at most on each side, the mention itself left out."""
        half = num_words // 2
        num_left = bisect.bisect_right(self._ends, mention.start)
        first_right = bisect.bisect_left(self._starts, mention.end)
        return self._rows[max(0, num_left - half) : num_left] + self._rows[first_right : first_right + half]


def select_candidates(
    first: Sequence[PriorCandidate],
    context: Sequence[int],
    words: Words,
    entity_vectors: npt.NDArray[np.float32],
    config: CandidateConfig,
) -> list[PriorCandidate]:
    """The best by prior, then the best of the rest by context, filled up by prior to S where these overlap."""
    if len(first) <= config.num_candidates:
        return list(first)
    chosen = list(range(config.kept_by_prior))
    if context:
        average = np.asarray(words.vectors[list(context)]).mean(axis=0)
        similarity = np.asarray(entity_vectors[[candidate.entity_id for candidate in first]]) @ average
        by_context = [int(row) for row in np.argsort(-similarity, kind="stable") if int(row) not in chosen]
        chosen += by_context[: config.kept_by_context]
    # Differs from the paper: filled up by prior where the two choices overlap, as in the authors' code
    rest = [row for row in range(len(first)) if row not in chosen]
    chosen += rest[: config.num_candidates - len(chosen)]
    return [first[row] for row in sorted(chosen)]
