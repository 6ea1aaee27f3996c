"""How well mentions are found in raw text. A span is right if both its ends equal an annotated span (strong match)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.evaluation.datasets import check_ids, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.types import Document, Prediction


@dataclass(frozen=True)
class DetectionScores:
    """Counts of spans, and their rates."""

    against: str
    """Which annotated spans count."""
    annotated: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.annotated if self.annotated else 0.0

    @property
    def f1(self) -> float:
        total = self.annotated + self.found
        return 2 * self.correct / total if total else 0.0


@dataclass(frozen=True)
class DetectionReport:
    dataset: str
    scores: tuple[DetectionScores, ...]
    characters_per_s: float

    @property
    def name(self) -> str:
        """The data set without its folders."""
        return self.dataset.rstrip("/").rpartition("/")[2]


def evaluate_detection(
    spans_of: Callable[[str], list[tuple[int, int]]], spec: str, *, kb: KnowledgeBase | None = None
) -> DetectionReport:
    """`links:` is read from `kb`."""
    documents = read_dataset(spec, kb=kb, with_unlinked=True)
    start = time.monotonic()
    found = [set(spans_of(document.text)) for document in documents]
    seconds = time.monotonic() - start
    num_characters = sum(len(document.text) for document in documents)
    return DetectionReport(spec, score_spans(documents, found), num_characters / seconds if seconds else 0.0)


def evaluate_end_to_end(linker: Linker, spec: str, *, kb: KnowledgeBase | None = None) -> DetectionReport:
    """Scores of spans as in `evaluate_detection`, then of mentions that also have the right entity."""
    documents = read_dataset(spec, kb=kb, with_unlinked=True)
    check_ids(spec, documents, linker.inputs.catalogue)
    start = time.monotonic()
    raw = [linker.document(document.text) for document in documents]
    answers = linker.link_batch(raw, explain=False)
    seconds = time.monotonic() - start
    found = [{(answer.start, answer.end) for answer in predictions} for predictions in answers]
    num_characters = sum(len(document.text) for document in documents)
    scores = (*score_spans(documents, found), *score_entities(documents, answers, linker.inputs.catalogue))
    return DetectionReport(spec, scores, num_characters / seconds if seconds else 0.0)


def score_entities(
    documents: Sequence[Document], answers: Sequence[Sequence[Prediction]], catalogue: Catalogue
) -> tuple[DetectionScores, DetectionScores]:
    """Strong match of span and entity, as answered and with the threshold that gives the best F1.

    Linking a mention that is annotated as outside Wikipedia is wrong.
    """
    gold = [
        {(m.start, m.end): catalogue.find_gold(m) for m in document.mentions if m.gold is not None}
        for document in documents
    ]
    # the probability of every answer, and whether it is right
    linked = [
        (answer.probability, expected.get((answer.start, answer.end)) == catalogue.find(answer.entity.title))
        for expected, predictions in zip(gold, answers, strict=True)
        for answer in predictions
        if answer.entity is not None
    ]
    num_annotated = sum(map(len, gold))

    def at(threshold: float, name: str) -> DetectionScores:
        kept = [is_right for probability, is_right in linked if probability >= threshold]
        return DetectionScores(name, num_annotated, len(kept), sum(kept))

    plain = at(0.0, "linked, with the right entity")
    best = max(
        (at(number / 20, f"... at threshold {number / 20:.2f}") for number in range(20)), key=lambda each: each.f1
    )
    return plain, best


def score_spans(documents: Sequence[Document], found: Sequence[set[tuple[int, int]]]) -> tuple[DetectionScores, ...]:
    """Three ways to count a mention that is annotated as outside Wikipedia (gold None): finding it is wrong, finding it
    is ignored, finding it is right."""
    linked = [{(m.start, m.end) for m in document.mentions if m.gold is not None} for document in documents]
    every = [{(m.start, m.end) for m in document.mentions} for document in documents]
    num_found = sum(map(len, found))
    right = sum(len(spans & gold) for spans, gold in zip(found, linked, strict=True))
    right_of_all = sum(len(spans & gold) for spans, gold in zip(found, every, strict=True))
    num_linked, num_all = sum(map(len, linked)), sum(map(len, every))
    return (
        DetectionScores("linked", num_linked, num_found, right),
        DetectionScores("linked, others ignored", num_linked, num_found - (right_of_all - right), right),
        DetectionScores("all", num_all, num_found, right_of_all),
    )
