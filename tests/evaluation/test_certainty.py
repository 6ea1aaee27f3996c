"""Calibration and risk, by hand."""

import numpy as np
import pytest

from deeped_ray.evaluation.certainty import Answers, answers


def of(*rows: tuple[float, bool]) -> Answers:
    return answers([(probability, is_right, False, False) for probability, is_right in rows])


def test_ece_weighs_the_gap_of_each_bin_by_its_answers() -> None:
    # bin 0.9 to 1: mean 0.95, half right, gap 0.45; bin 0.2 to 0.3: mean 0.25, none right, gap 0.25
    assert of((0.9, True), (1.0, False), (0.25, False)).ece == pytest.approx((2 * 0.45 + 1 * 0.25) / 3)


def test_answers_that_are_right_as_often_as_they_say_have_no_error() -> None:
    assert of(*[(0.75, True)] * 3, (0.75, False)).ece == pytest.approx(0)


def test_auroc_is_the_chance_that_a_right_answer_is_surer_than_a_wrong_one() -> None:
    # right: .9, .6; wrong: .7, .6. Pairs: .9 > .7, .9 > .6, .6 < .7, .6 = .6 counts half
    assert of((0.9, True), (0.6, True), (0.7, False), (0.6, False)).auroc == pytest.approx(2.5 / 4)


def test_auroc_needs_both_right_and_wrong_answers() -> None:
    assert of((0.9, True)).auroc is None
    assert of((0.9, False)).auroc is None
    assert (of().auroc, of().ece, of().coverage_at(0.9)) == (None, None, 0.0)


def test_coverage_is_the_longest_list_of_surest_answers_that_is_right_enough() -> None:
    rows = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.5, False)]
    assert of(*rows).coverage_at(1.0) == pytest.approx(2 / 5)
    assert of(*rows).coverage_at(0.75) == pytest.approx(4 / 5)
    assert of(*rows).coverage_at(0.1) == 1.0


def test_answers_of_equal_probability_are_given_together() -> None:
    assert of((0.9, True), (0.9, False)).coverage_at(1.0) == 0.0


def test_precision_at_a_threshold_counts_what_is_left() -> None:
    found = of((0.95, True), (0.9, True), (0.9, False), (0.2, False))
    assert found.precision_at(0.9) == pytest.approx(2 / 3)
    assert found.precision_at(0.99) is None


def test_the_threshold_for_a_precision_is_the_lowest_that_reaches_it() -> None:
    rows = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.5, False)]
    assert [of(*rows).threshold_at(precision) for precision in (1.0, 0.75, 0.1)] == [0.8, 0.6, 0.5]
    assert of((0.9, False)).threshold_at(0.9) is None


def test_none_is_right_where_the_knowledge_base_lacks_the_entity() -> None:
    found = answers(
        [(0.1, False, True, True), (0.2, True, True, False), (0.9, False, False, True), (0.9, True, False, False)]
    )
    assert found.nil == (0.5, 0.5, 0.5)
    assert of((0.9, True)).nil == (None, None, None)


def test_better_ranking_covers_no_less() -> None:
    rng = np.random.default_rng(0)
    is_right = rng.random(1000) < 0.7
    noise = rng.random(1000)
    good, poor = (np.clip(0.5 * is_right + share * noise, 0, 1) for share in (0.5, 1.0))
    covered = [of(*zip(each.tolist(), is_right.tolist(), strict=True)).coverage_at(0.9) for each in (good, poor)]
    assert covered[0] >= covered[1]
