"""The kernels of detection beside plain numpy and Python."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.corpus.occurrences import MAX_UNITS, SequenceIndex, join_sequences, later_hashes, write_sequences
from deeped_ray.linking import column_kernels, span_kernels
from deeped_ray.linking.hash_kernels import place_of_hash, rows_of_hashes
from deeped_ray.linking.spans import MAX_RUN
from deeped_ray.linking.units import BREAK, MAX_PREFIX, read_units, runs_of
from deeped_ray.text import hash_tokens, unit_spans

TEXTS = [
    "Dr. J. Smith of the U.S. met the BANK OF ENGLAND'S head.\nIt rained & rained in New-York; O’Neill & Sons left.",
    "Cafe\u0301 in Ma\u0301laga, \u0301x \u200b東京タワー and Straße ǅ ß İ _a_ 12th",
    "הוא גר בירושלים והלך. بالقاهرة",
    "a",
    "",
]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("bits", [3, 64])
def test_hashes_are_found_where_a_binary_search_finds_them(size: int, bits: int) -> None:
    hashes = np.sort(RNG.integers(0, 2**bits - 1, size, np.uint64, endpoint=True))
    keys = np.concatenate([hashes, RNG.integers(0, 2**64 - 1, 200, np.uint64), np.array([0, 2**64 - 1], np.uint64)])
    assert [place_of_hash(key, hashes) for key in keys] == hashes.searchsorted(keys).tolist()
    rows, found = RNG.permutation(size), np.empty(len(keys), np.int64)
    rows_of_hashes(keys, hashes, rows, found)
    known = {int(key): int(row) for key, row in zip(hashes[::-1], rows[::-1], strict=True)}
    assert found.tolist() == [known.get(int(key), -1) for key in keys]


@pytest.mark.parametrize("text", TEXTS)
def test_units_stand_and_hash_as_in_the_bulk_form(text: str) -> None:
    units, expected = read_units(text), unit_spans(text)
    assert np.stack([units.starts, units.ends]).tolist() == np.stack([expected.starts, expected.ends]).tolist()
    assert units.is_spaced.tolist() == expected.is_spaced.tolist()


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[2]])
def test_units_hash_their_forms(text: str) -> None:
    units = read_units(text)
    own = [text[start:end] for start, end in zip(units.starts.tolist(), units.ends.tolist(), strict=True)]
    assert units.own.tolist() == hash_tokens(own).tolist()
    assert units.lower.tolist() == hash_tokens([each.lower() for each in own]).tolist()
    assert units.title.tolist() == hash_tokens([each[0].upper() + each[1:].lower() for each in own]).tolist()
    for count, found in enumerate(units.prefixed, 1):
        cut = [each[count:] if len(each) > count + 1 and "\u0590" <= each[0] <= "\u06ff" else "\n" for each in own]
        assert found.tolist() == hash_tokens(cut).tolist()


def test_units_know_their_case_and_place() -> None:
    text = "Up. the J. Smith\nNOW he & She: low only. 3 x"
    units = read_units(text)
    own = [text[start:end] for start, end in zip(units.starts.tolist(), units.ends.tolist(), strict=True)]

    def those(flags: np.ndarray) -> list[str]:
        return [unit for unit, flag in zip(own, flags, strict=True) if flag]

    assert those(units.is_capital) == ["Up", "J", "Smith", "NOW", "She"]
    assert those(units.is_upper) == ["NOW"]
    assert those(units.is_initial) == ["Up", "the", "NOW", "low", "3"]
    assert those(units.is_line_start) == ["Up", "NOW"]
    assert those(units.is_flat) == ["low", "only", "."]
    assert those(units.is_number) == ["3"]
    assert those(units.is_stop) == ["Up", "the", "NOW", "he", "She", "only"]


def test_runs_go_on_over_signs_that_join() -> None:
    text = "Smith & Sons of New-York met J. Doe, Ann. Bob"
    units = read_units(text)
    runs = runs_of(units)
    found: dict[int, list[str]] = {}
    for place in np.flatnonzero(runs.run >= 0).tolist():
        found.setdefault(int(runs.run[place]), []).append(text[units.starts[place] : units.ends[place]])
    assert [*found.values()] == [["Smith", "Sons"], ["New", "York"], ["J", "Doe"], ["Ann"], ["Bob"]]
    for run, words in found.items():
        assert runs.place[runs.run == run].tolist() == [*range(len(words))]
        assert set(runs.size[runs.run == run].tolist()) == {len(words)}


def test_spans_as_written_are_those_of_the_bulk_form(tmp_path: Path) -> None:
    mentions = ["a b", "a b c", "b", "c.", "c . b", "b-a", "a", "a  b", "b a b a b"]
    write_sequences(tmp_path / "piece", mentions)
    join_sequences([tmp_path / "piece"], [len(mentions)], tmp_path)
    index = SequenceIndex(tmp_path)
    text = "".join(RNG.choice([*"abc.-  "], 600))
    units = read_units(text)
    n = len(units.starts)
    none = np.zeros(n, bool)
    flags, case = (units.is_spaced, units.is_word, none, none, none, none), (none, none, none)
    runs = (np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64))
    hashes = (units.own, units.lower, units.title)
    given = (hashes, units.prefixed, flags, case, runs, np.zeros(0, np.int64), index.tables)
    pages = (np.ones(len(mentions), np.int32),) * 2
    settings = (MAX_UNITS, MAX_RUN, MAX_PREFIX, 0.02, BREAK)
    found = np.empty((6, 5), np.int64)
    number = span_kernels.find_spans(*given, pages, settings, found)
    found = np.empty((6, number), np.int64)
    assert span_kernels.find_spans(*given, pages, settings, found) == number
    expected = index.find(units.own, later_hashes(units.own, units.is_spaced))
    rows = {(place, length): row for place, length, row in zip(*(each.tolist() for each in expected), strict=True)}
    rows = {(place, length): row for (place, length), row in rows.items() if units.is_word[place]}
    assert {(place, length): row for place, length, _, row, _, _ in found.T.tolist()} == rows
    assert found[:2].T.tolist() == sorted(found[:2].T.tolist())


def test_marks_are_added_up_by_word() -> None:
    words, marks = RNG.integers(0, 9, 60), RNG.integers(0, 2, (4, 60)).astype(bool)
    places, owners, totals = np.zeros(128, np.int64), np.empty(60, np.int64), np.empty((60, 4), np.int64)
    number = column_kernels.count_marks(words[:30], marks[:, :30], 0, places, owners, totals)
    number = column_kernels.count_marks(words[30:], marks[:, 30:], number, places, owners, totals)
    assert number == len({*words.tolist()})
    told = np.empty((4, 60), np.int64)
    column_kernels.read_marks(words, places, owners, totals, told)
    for row, mark in zip(told, marks, strict=True):
        counts = Counter(words[mark].tolist())
        assert row.tolist() == [counts[word] for word in words.tolist()]


def test_fits_are_expected_and_largest_cosines() -> None:
    fits, shares = RNG.random((3, 5, 2), np.float32), RNG.random((5, 2), np.float32)
    shares[2] = 0
    columns = np.empty((5, 6), np.float32)
    column_kernels.fitting(fits, shares, columns)
    expected = (fits * shares).sum(axis=2) / np.maximum(shares.sum(axis=1), 1e-6)
    np.testing.assert_allclose(columns[:, :3].T, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(columns[:, 3:].T, fits.max(axis=2))


def test_running_sums_and_standard_columns() -> None:
    vectors, rows = RNG.random((6, 4), np.float32), RNG.integers(0, 6, 9)
    running = np.zeros((10, 4), np.float32)
    column_kernels.add_up(vectors, rows, running)
    np.testing.assert_allclose(running[1:], np.cumsum(vectors[rows], axis=0), rtol=1e-5)
    columns = RNG.random((3, 4), np.float32)
    columns[1, 2] = np.nan
    standard = np.empty((3, 4), np.float32)
    column_kernels.standardise(columns, vectors[0], vectors[1], standard)
    np.testing.assert_allclose(standard, np.nan_to_num((columns - vectors[0]) / vectors[1]), rtol=1e-4, atol=1e-6)
