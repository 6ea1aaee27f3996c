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
class Result:
    """Counts over a data set, and the rates that follow from them."""

    num_mentions: int
    num_answered: int
    num_correct: int
    num_gold_in_candidates: int
    macro_f1: float

    @property
    def accuracy(self) -> float:
        return _ratio(self.num_correct, self.num_mentions)

    @property
    def precision(self) -> float:
        return _ratio(self.num_correct, self.num_answered)

    @property
    def micro_f1(self) -> float:
        return f1(self.num_correct, self.num_answered, self.num_mentions)

    @property
    def gold_recall(self) -> float:
        return _ratio(self.num_gold_in_candidates, self.num_mentions)


def f1(num_correct: int, num_answered: int, num_gold: int) -> float:
    """Harmonic mean of correct / answered and correct / gold."""
    return _ratio(2 * num_correct, num_answered + num_gold)


def score(documents: Sequence[Document], predictions: Sequence[Sequence[Prediction]], catalogue: Catalogue) -> Result:
    """Compare answers with gold titles, both after redirects; a gold entity outside the knowledge base counts as missed."""
    totals = [0, 0, 0, 0]
    document_f1 = []
    for document, answers in zip(documents, predictions, strict=True):
        counts = [0, 0, 0, 0]
        for mention, answer in zip(document.mentions, answers, strict=True):
            gold = _canonical(mention.gold, catalogue)
            titles = [candidate.title for candidate in answer.candidates]
            outcome = (1, bool(titles), bool(titles) and titles[0] == gold, gold in titles)
            counts = [count + int(hit) for count, hit in zip(counts, outcome, strict=True)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        if counts[0]:
            document_f1.append(f1(counts[2], counts[1], counts[0]))
    return Result(*totals, macro_f1=_ratio(sum(document_f1), len(document_f1)))


def _canonical(title: str | None, catalogue: Catalogue) -> str | None:
    entity_id = catalogue.find(title) if title else None
    return None if entity_id is None else catalogue.title(entity_id)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
