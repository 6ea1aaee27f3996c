from pathlib import Path

import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.detection import evaluate_detection, score_spans
from deeped_ray.types import Document, Mention
from tests.evaluation.test_aida import DOCUMENTS


def test_spans_outside_wikipedia_are_wrong_ignored_or_right() -> None:
    document = Document("d", "x" * 40, (Mention(0, 3, "A"), Mention(5, 8, "B"), Mention(10, 13)))
    linked, ignoring, every = score_spans([document], [{(0, 3), (10, 13), (20, 23), (5, 9)}])
    # found 4: one linked, one outside Wikipedia, one where nothing is, one with another end
    assert (linked.precision, linked.recall) == (1 / 4, 1 / 2)
    assert (ignoring.precision, ignoring.recall) == (1 / 3, 1 / 2)
    assert (every.precision, every.recall) == (2 / 4, 2 / 3)
    assert linked.f1 == pytest.approx(2 * (1 / 4) * (1 / 2) / (1 / 4 + 1 / 2))


def test_nothing_found_or_annotated_scores_zero() -> None:
    for scores in score_spans([Document("d", "", ())], [set()]):
        assert (scores.precision, scores.recall, scores.f1) == (0, 0, 0)


def test_a_detector_is_scored_on_a_data_set(tmp_path: Path) -> None:
    def spans_of(text: str) -> list[tuple[int, int]]:
        return [(text.index(name), text.index(name) + len(name)) for name in ("New York", "Smith") if name in text]

    (tmp_path / "a.tsv").write_text(DOCUMENTS)
    report = evaluate_detection(spans_of, f"aida:{tmp_path / 'a.tsv'}")
    assert report.name == "a.tsv"
    assert [(scores.annotated, scores.found, scores.correct) for scores in report.scores] == [
        (2, 2, 1),
        (2, 1, 1),
        (3, 2, 2),
    ]


def test_mentions_outside_wikipedia_can_be_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(DOCUMENTS)
    first = read_dataset(f"aida:{tmp_path / 'a.tsv'}", with_unlinked=True)[0]
    assert [(first.surface(mention), mention.gold) for mention in first.mentions] == [
        ("New York", "New York City"),
        ("Paris", "Paris (band)"),
        ("Smith", None),
    ]
