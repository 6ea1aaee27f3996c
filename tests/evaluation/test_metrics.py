from pathlib import Path

import pytest

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.evaluation.metrics import Outcome, Result, Share, judge, mean_and_interval
from deeped_ray.types import Candidate, Mention, Page, Prediction
from tests.conftest import make_catalogue

RIGHT = Outcome(True, True, None, 0.6, 7)
MISLED = Outcome(True, False, "prior_misled", 0.3, 0)
PRUNED = Outcome(True, False, "pruned", 0.02, 60)
UNKNOWN = Outcome(False, False, "unknown_name", None, 11)
OUTSIDE = Outcome(True, False, "outside_kb", None, 0)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    pages = [Page(1, "A", ""), Page(2, "B", ""), Page(3, "C", ""), Page(4, "Old A", "", redirect="A")]
    return make_catalogue(tmp_path, pages)


def answer(**priors: float) -> Prediction:
    return Prediction(0, 1, "x", tuple(Candidate(title, 0, "", p, 0.0, None, 0.0, 0.5) for title, p in priors.items()))


def first(**priors: float) -> list[PriorCandidate]:
    return [PriorCandidate("ABC".index(title), prior, 1) for title, prior in priors.items()]


@pytest.mark.parametrize(
    ("gold", "given", "offered", "error"),
    [
        ("A", answer(A=0.2, B=0.5), first(B=0.5, A=0.2), None),
        ("Old A", answer(A=0.2, B=0.5), first(B=0.5, A=0.2), None),
        ("Atlantis", answer(A=0.2), first(A=0.2), "outside_kb"),
        ("Atlantis", answer(), [], "outside_kb"),
        ("A", answer(), [], "unknown_name"),
        ("C", answer(A=0.2), first(A=0.2), "not_a_candidate"),
        ("C", answer(A=0.2), first(A=0.2, C=0.1), "pruned"),
        ("B", answer(A=0.5, B=0.2), first(A=0.5, B=0.2), "prior_misled"),
        ("B", answer(A=0.2, B=0.5), first(B=0.5, A=0.2), "context_misled"),
    ],
)
def test_errors_are_told_apart(
    catalogue: Catalogue, gold: str, given: Prediction, offered: list[PriorCandidate], error: str | None
) -> None:
    outcome = judge(Mention(0, 1, gold), given, offered, catalogue)
    assert (outcome.error, outcome.is_correct) == (error, error is None)
    assert outcome.is_answered == bool(given.candidates)


def test_the_gold_prior_is_that_before_pruning(catalogue: Catalogue) -> None:
    outcome = judge(Mention(0, 1, "C"), answer(A=0.2), first(A=0.2, C=0.1), catalogue)
    assert (outcome.gold_prior, outcome.is_offered, outcome.is_kept) == (0.1, True, False)


def test_a_worked_example() -> None:
    result = Result([[RIGHT, RIGHT, MISLED], [], [UNKNOWN, OUTSIDE, RIGHT, PRUNED]])
    scores = result.scores
    # 7 mentions, 6 answered, 3 right; by document 3, 3, 2 and 4, 3, 1; the one without mentions has no figure
    assert (scores.micro_precision, scores.accuracy) == pytest.approx((3 / 6, 3 / 7))
    assert scores.micro_f1 == pytest.approx(2 * (3 / 6) * (3 / 7) / (3 / 6 + 3 / 7))
    assert (scores.macro_precision, scores.macro_recall) == pytest.approx(((2 / 3 + 1 / 3) / 2, (2 / 3 + 1 / 4) / 2))
    assert scores.macro_f1 == pytest.approx((2 / 3 + 2 * 1 / (4 + 3)) / 2)
    assert (result.gold_recall, result.gold_recall_kept) == pytest.approx((5 / 7, 4 / 7))


def test_errors_add_up_to_what_is_not_right() -> None:
    result = Result([[RIGHT, MISLED, MISLED], [UNKNOWN, OUTSIDE, PRUNED]])
    assert list(result.errors.values()) == [1, 1, 0, 1, 2, 0]
    assert sum(result.errors.values()) == 6 - 1


def test_classes_hold_the_mentions_whose_gold_was_kept() -> None:
    result = Result([[RIGHT, MISLED, PRUNED, UNKNOWN, Outcome(True, True, None, 0.3, 10)]])
    # links 7, 0 and 10; priors 0.6, 0.3 and 0.3: upper bounds belong to their class
    assert result.by_links["1-10"] == Share(mentions=2, correct=2)
    assert result.by_links["0"] == Share(mentions=1, correct=0)
    assert result.by_links["> 50"].accuracy is None
    assert {name: share.mentions for name, share in result.by_prior.items() if share.mentions} == {
        "0.1-0.3": 2,
        "> 0.3": 1,
    }


def test_intervals_hold_the_score_and_shrink_with_more_documents() -> None:
    few, many = Result([[RIGHT], [MISLED]] * 10), Result([[RIGHT], [MISLED]] * 1000)
    (low, high), (tight_low, tight_high) = few.intervals["accuracy"], many.intervals["accuracy"]
    # a mean of 20 fair coins has a standard deviation of sqrt(0.25 / 20) = 0.11, of 2,000 a tenth of that
    assert high - low == pytest.approx(2 * 1.96 * (0.25 / 20) ** 0.5, rel=0.2)
    assert tight_high - tight_low == pytest.approx((high - low) / 10, rel=0.2)
    assert Result([[RIGHT], [MISLED]] * 10).intervals == few.intervals


def test_intervals_resample_documents_not_mentions() -> None:
    # every document is half right, so that no choice of documents changes the score
    assert Result([[RIGHT, MISLED]] * 5).intervals["accuracy"] == (0.5, 0.5)


def test_nothing_scores_zero() -> None:
    assert Result([]).scores.micro_f1 == Result([[]]).scores.macro_f1 == 0
    assert Result([]).intervals["micro_f1"] == (0, 0)
    assert Result([]).gold_recall == 0


def test_interval_over_seeds_is_students() -> None:
    mean, interval = mean_and_interval([0.90, 0.92, 0.94])
    assert mean == pytest.approx(0.92)
    assert interval == pytest.approx(4.3027 * 0.02 / 3**0.5, rel=1e-3)
    assert mean_and_interval([0.5]) == (0.5, 0.0)


def test_a_pick_among_candidates_with_text_is_right_by_their_share() -> None:
    outcomes = [
        Outcome(True, True, None, 0.6, 7, text_chance=0.5),
        Outcome(True, False, "pruned", 0.1, 1, text_chance=0.0),
    ]
    assert Result([outcomes]).text_only == 0.25
