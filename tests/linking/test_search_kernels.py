"""Kernels that look things up, beside plain numpy and Python."""

import numpy as np
import pytest

from deeped_ray.linking import kernels, near_kernels, score_kernels
from deeped_ray.linking.layout_kernels import place_from
from deeped_ray.linking.text_kernels import MOST_ROWS, NO_ROW, UNKNOWN, find_words, remember
from deeped_ray.text import character_kinds, codes_of, hash_tokens

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [0, 1, 5, 200])
def test_values_are_found_on_from_where_the_one_before_was(size: int) -> None:
    ordered = np.sort(RNG.integers(0, 300, size))
    start = 0
    for value in range(-1, 302, 3):
        start = place_from(start, value, ordered)
        assert start == ordered.searchsorted(value)


def test_letters_are_those_of_words_that_near_entities_are_called_by() -> None:
    near = np.unique(RNG.integers(0, 200, 60))
    lists = [np.unique(RNG.integers(0, 200, size)) for size in (0, 3, 150, 40)]
    ends = np.cumsum([len(each) for each in lists])
    rows = np.stack([ends - [len(each) for each in lists], ends, [4, 5, 6, 7]], axis=1)
    places, slots = np.array([[0, 2], [2, 4], [3, 3]]), np.array([1, 0, 1, 2])
    letters = np.zeros((len(slots), len(near)), np.float32)
    near_kernels.shared_letters(slots, places, rows, near, np.concatenate(lists).astype(np.int32), letters)
    for slot, row in zip(slots.tolist(), letters, strict=True):
        words = range(*places[slot].tolist())
        assert row.tolist() == [sum(4 + word for word in words if each in lists[word]) for each in near.tolist()]


def test_words_are_remembered_until_others_need_their_place() -> None:
    words = [f"w{number}" for number in range(400)]
    table, hashes, rows = np.zeros(64, np.uint64), hash_tokens(words), np.arange(-1, 399)
    for each in range(len(words)):
        remember(table, hashes[each : each + 1], rows[each : each + 1])
        found = rows_of(words[: each + 1], table)
        assert found[-1] == rows[each]
        assert all(row in (UNKNOWN, own) for row, own in zip(found, rows[: each + 1].tolist(), strict=True))
    assert np.count_nonzero(table) == 64
    remember(table, hash_tokens(["high"]), np.array([MOST_ROWS + 1]))
    assert rows_of(["high"], table) == [UNKNOWN]
    assert rows[0] == NO_ROW


def rows_of(words: list[str], table: np.ndarray) -> list[int]:
    codes = codes_of(" ".join(words))
    starts, ends, rows = np.empty((3, len(codes)), np.int64)
    number = find_words(codes, character_kinds(), table, starts, ends, np.empty(len(codes), np.uint64), rows)
    found: list[int] = rows[:number].tolist()
    return found


@pytest.mark.parametrize("R", [1, 4, 30])
def test_local_scores_are_those_of_all_products(R: int) -> None:
    n, S, K, E, W, d = 5, 3, 20, 8, 15, 64
    entities, table = RNG.standard_normal((E, d), np.float32), RNG.standard_normal((40, 2, d), np.float32)
    slots, context = RNG.permutation(40)[:W], RNG.integers(0, W, (n, K))
    candidates, num_candidates = RNG.integers(0, E, (n, S)), np.array([3, 0, 1, 2, 3])
    num_words = np.array([20, 20, 7, 0, 1])
    psi, beta = np.zeros((n, S), np.float32), np.zeros((n, K), np.float32)
    score_kernels.local_scores(entities, table, slots, candidates, num_candidates, context, num_words, R, psi, beta)
    a_scores, b_scores = (entities @ table[slots, form].T for form in range(2))
    expected, expected_beta, strongest = np.zeros_like(psi), np.zeros_like(beta), np.zeros((n, K), np.int32)
    given = (candidates, num_candidates, context, num_words, R)
    kernels.attend(a_scores, b_scores, *given, expected, expected_beta, strongest)
    np.testing.assert_allclose(psi, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(beta, expected_beta, atol=1e-5)
