"""Scores of linked documents, by the field's definitions.

accuracy    right answers / all annotated mentions (AIDA's in-KB accuracy); equals micro recall
precision   right answers / mentions that were given an answer
gold recall mentions whose gold entity is among the candidates / all annotated mentions
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deeped_ray.corpus.entities import Catalogue
from deeped_ray.types import Document, Prediction


@dataclass(frozen=True)
class Counts:
    """What happened to the mentions of one document, or of several added up."""

    mentions: int = 0
    answered: int = 0
    correct: int = 0
    gold_in_candidates: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def f1(self) -> float:
        """Harmonic mean of correct / answered and correct / mentions."""
        return _ratio(2 * self.correct, self.answered + self.mentions)


@dataclass(frozen=True)
class Result:
    """Rates over a data set."""

    counts: Counts
    macro_f1: float

    @property
    def accuracy(self) -> float:
        return _ratio(self.counts.correct, self.counts.mentions)

    @property
    def precision(self) -> float:
        return _ratio(self.counts.correct, self.counts.answered)

    @property
    def micro_f1(self) -> float:
        return self.counts.f1

    @property
    def gold_recall(self) -> float:
        return _ratio(self.counts.gold_in_candidates, self.counts.mentions)


def score(documents: Sequence[Document], predictions: Sequence[Sequence[Prediction]], catalogue: Catalogue) -> Result:
    """Micro scores over all mentions; macro F1 as the mean over documents that have mentions."""
    counted = [count(document, answers, catalogue) for document, answers in zip(documents, predictions, strict=True)]
    scored = [counts.f1 for counts in counted if counts.mentions]
    return Result(sum(counted, Counts()), _ratio(sum(scored), len(scored)))


def count(document: Document, answers: Sequence[Prediction], catalogue: Catalogue) -> Counts:
    """Compare answers with gold titles, both after redirects; a gold entity outside the knowledge base counts as missed."""
    total = Counts()
    for mention, answer in zip(document.mentions, answers, strict=True):
        gold_id = catalogue.find(mention.gold) if mention.gold else None
        gold = None if gold_id is None else catalogue.title(gold_id)
        titles = [candidate.title for candidate in answer.candidates]
        total += Counts(1, int(bool(titles)), int(titles[:1] == [gold]), int(gold in titles))
    return total


def _ratio(part: int | float, whole: int) -> float:
    return part / whole if whole else 0.0
