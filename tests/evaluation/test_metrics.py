from pathlib import Path

import pytest

from deeped_ray.corpus.entities import Catalogue
from deeped_ray.evaluation.metrics import Counts, score
from deeped_ray.types import Candidate, Document, Mention, Page, Prediction
from tests.conftest import make_catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return make_catalogue(tmp_path, [Page(1, "A", ""), Page(2, "B", ""), Page(3, "Old A", "", redirect="A")])


def answer(*titles: str) -> Prediction:
    return Prediction(0, 1, "x", tuple(Candidate(title, 0, 0.5, 0.0, None, 0.0, 0.5) for title in titles))


def test_a_worked_example(catalogue: Catalogue) -> None:
    gold = [["A", "Old A", "B"], ["B", "Outside"]]
    documents = [
        Document(str(i), "x", tuple(Mention(0, 1, title) for title in titles)) for i, titles in enumerate(gold)
    ]
    predictions = [[answer("A"), answer("A", "B"), answer("A", "B")], [answer(), answer("A")]]
    result = score(documents, predictions, catalogue)
    # right: A, Old A (a redirect to A); wrong: B (A ranked first), Outside (not in the knowledge base); unanswered: B
    assert result.counts == Counts(mentions=5, answered=4, correct=2, gold_in_candidates=3)
    assert result.accuracy == pytest.approx(2 / 5)
    assert result.precision == pytest.approx(2 / 4)
    assert result.micro_f1 == pytest.approx(2 * 2 / (4 + 5))
    assert result.gold_recall == pytest.approx(3 / 5)
    assert result.macro_f1 == pytest.approx((2 * 2 / (3 + 3) + 0) / 2)


def test_nothing_scores_zero(catalogue: Catalogue) -> None:
    assert score([], [], catalogue).micro_f1 == 0
