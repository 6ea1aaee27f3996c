"""Whether probabilities mean what they say.

ECE       expected calibration error: mean distance between the probability of the best candidate and the share of such
          answers that are right, over ten bins of equal width, weighted by their size
AUROC     chance that a right answer has a higher probability than a wrong one
coverage  share of mentions that can be answered, most certain first, with so many right among them
none      a mention means none of the candidates if the knowledge base lacks its gold entity

They are taken over mentions that have candidates. An answer whose gold entity the knowledge base lacks is wrong.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
BINS = 10


class Bin(NamedTuple):
    """Answers of about the same probability."""

    answers: int
    probability: float
    """Their mean."""
    right: float
    """The share that is right."""


class Answers(NamedTuple):
    """One row for every mention that has candidates."""

    probability: Floats
    """Of the best candidate."""
    is_right: Bools
    is_none: Bools
    """Whether the linker answers that none of the candidates is meant."""
    is_outside: Bools
    """Whether the knowledge base lacks the gold entity."""

    @property
    def bins(self) -> list[Bin]:
        """Reliability: what a picture of calibration shows."""
        place = np.minimum((self.probability * BINS).astype(int), BINS - 1)
        found = []
        for number in range(BINS):
            rows = place == number
            if rows.any():
                right = float(self.is_right[rows].mean())
                found.append(Bin(int(rows.sum()), float(self.probability[rows].mean()), right))
        return found

    @property
    def ece(self) -> float | None:
        if not len(self.is_right):
            return None
        return sum(each.answers * abs(each.probability - each.right) for each in self.bins) / len(self.is_right)

    @property
    def auroc(self) -> float | None:
        """None if all answers are right, or all are wrong."""
        num_right = int(self.is_right.sum())
        num_wrong = len(self.is_right) - num_right
        if not num_right or not num_wrong:
            return None
        _, place, counts = np.unique(self.probability, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # those of equal probability share their ranks
        return float((ranks[self.is_right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))

    def precision_at(self, threshold: float) -> float | None:
        """Share of right answers among those with at least this probability."""
        chosen = self.probability >= threshold
        return float(self.is_right[chosen].mean()) if chosen.any() else None

    def coverage_at(self, precision: float) -> float:
        """Answers of equal probability are given together or not at all."""
        if not len(self.is_right):
            return 0.0
        covered, precisions = self.curve
        reached = np.flatnonzero(precisions >= precision)
        return float(covered[reached[-1]]) if len(reached) else 0.0

    def threshold_at(self, precision: float) -> float | None:
        """The lowest threshold above which so many answers are right; None if there is none."""
        covered = round(self.coverage_at(precision) * len(self.probability))
        return float(np.sort(self.probability)[-covered]) if covered else None

    @property
    def curve(self) -> tuple[Floats, Floats]:
        """Share of mentions answered, and share of right answers among them, from the most certain answer on."""
        order = np.argsort(-self.probability, kind="stable")
        is_last = np.append(np.diff(self.probability[order]) != 0, True)
        number = np.arange(1, len(order) + 1)
        right = np.cumsum(self.is_right[order])
        return (number / len(order))[is_last], (right / number)[is_last]

    @property
    def nil(self) -> tuple[float | None, float | None, float | None]:
        """Precision, recall and F1 of the answer "none of these"; None where nothing was answered so, or should be."""
        right = int((self.is_none & self.is_outside).sum())
        answered, expected = int(self.is_none.sum()), int(self.is_outside.sum())
        f1 = 2 * right / (answered + expected) if answered + expected else None
        return right / answered if answered else None, right / expected if expected else None, f1


def answers(rows: Sequence[tuple[float, bool, bool, bool]]) -> Answers:
    """From the probability of the best candidate, whether it is right, answered as none, and outside."""
    columns = np.array(rows, np.float64).reshape(-1, 4).T
    return Answers(columns[0], *(column > 0 for column in columns[1:]))
