from pathlib import Path

import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.detection import evaluate_detection, score_entities, score_spans
from deeped_ray.types import Candidate, Document, Mention, Prediction
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


class Titles:
    """As much of a catalogue as scoring asks for."""

    def find(self, title: str) -> int | None:
        return {"Bonn": 1, "Rome": 2}.get(title)

    def find_gold(self, mention: Mention) -> int | None:
        return self.find(mention.gold) if mention.gold else None


def answer(start: int, title: str, probability: float) -> Prediction:
    candidate = Candidate(title, 1, "", 1.0, 0.0, None, 1.0, probability)
    return Prediction(start, start + 4, "", (candidate,))


def test_entities_count_where_span_and_title_agree_and_a_threshold_is_found() -> None:
    mentions = (Mention(0, 4, "Bonn"), Mention(5, 9, "Rome"), Mention(10, 14, None))
    document = Document("d", "Bonn Rome John", mentions)
    # right and sure; the wrong entity; a person outside Wikipedia, with little certainty
    found = [answer(0, "Bonn", 0.9), answer(5, "Bonn", 0.6), answer(10, "Rome", 0.3)]
    plain, best = score_entities([document], [found], Titles())  # type: ignore[arg-type]
    assert (plain.annotated, plain.found, plain.correct) == (2, 3, 1)
    assert (best.found, best.correct, best.against) == (1, 1, "... at threshold 0.65")
