"""Rows come out of the shuffle in the order of their keys, whatever they were cut into, and never too many at once."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from deeped_ray.corpus.shuffle import HASHES, MAX_RANGES, Plan, Shuffle, Spilled
from deeped_ray.storage.location import Location

BYTES_PER_ROW = 16
Keys = npt.NDArray[Any]


def spill(shuffle: Shuffle, lots: list[Keys], num_keys: int) -> Plan:
    spilled, first = Spilled(), 0
    for number, keys in enumerate(lots):
        rows = pa.table({"key": keys, "place": np.arange(first, first + len(keys))})
        spilled |= shuffle.spill(f"t-{number:04d}", rows, num_keys=num_keys)
        first += len(keys)
    plan = shuffle.plan("t", spilled, num_keys=num_keys)
    for combining in plan.combinings:
        shuffle.combine(combining)
    return plan


def lots_of(kind: str) -> tuple[list[Keys], int]:
    rng = np.random.default_rng(1)
    if kind == "hashes":
        return [rng.integers(0, 2**64 - 1, size, np.uint64, endpoint=True) for size in (40, 0, 70, 1, 90)], HASHES
    lots: list[Keys] = [rng.integers(0, 1000, size) for size in (40, 0, 70, 1, 90)]
    if kind == "few":
        return [lot % 3 for lot in lots], 3
    return [lot // 100 if kind == "skewed" else lot[:0] if kind == "none" else lot for lot in lots], 1000


@pytest.mark.parametrize("kind", ["hashes", "ids", "skewed", "few", "none"])
@pytest.mark.parametrize(("max_rows", "num_partitions"), [(5, 0), (5, 3), (60, 0), (60, 40), (10_000, 1), (10_000, 0)])
def test_rows_come_in_the_order_of_keys_and_then_of_files(
    tmp_path: Path, kind: str, max_rows: int, num_partitions: int
) -> None:
    shuffle = Shuffle(Location(tmp_path), max_rows * BYTES_PER_ROW, num_partitions)
    lots, num_keys = lots_of(kind)
    plan = spill(shuffle, lots, num_keys)
    slices = [each for partition in plan.partitions for each in shuffle.slices(partition)]
    keys, places = (np.concatenate([each.rows[name].to_numpy() for each in slices]) for name in ("key", "place"))
    expected = np.concatenate(lots)
    by_key = np.argsort(keys, kind="stable")  # of one slice, rows are in the order of their files
    assert keys[by_key].tolist() == np.sort(expected).tolist()
    assert places[by_key].tolist() == np.argsort(expected, kind="stable").tolist()
    borders = [0, *(each.end for each in slices)]
    assert [each.first for each in slices] == borders[:-1]
    assert borders[-1] == num_keys
    assert all(each.first <= key < each.end for each in slices for key in each.rows["key"].to_pylist())
    assert all(each.rows.num_rows <= max_rows or each.end == each.first + 1 for each in slices)


def test_pieces_grow_with_the_rows_and_not_with_their_square(tmp_path: Path) -> None:
    counts = {}
    for size in (28, 280):
        sizes = {f"t-{number:04d}": [1000] * MAX_RANGES for number in range(size)}
        plan = Shuffle(Location(tmp_path), 28_000).plan("t", sizes)
        assert len(plan.partitions) == MAX_RANGES * size // 28
        counts[size] = plan.num_pieces
    assert counts[28] == 28 * MAX_RANGES
    assert counts[280] <= 12 * counts[28]


def test_sets_of_rows_are_cut_at_the_same_keys(tmp_path: Path) -> None:
    shuffle = Shuffle(Location(tmp_path), 4 * BYTES_PER_ROW)
    rows = [pa.table({"key": np.arange(0, 64, step), "value": np.arange(0, 64, step)}) for step in (1, 16)]
    sets = [shuffle.spill(f"{name}-0", table, num_keys=64) for name, table in zip("ab", rows, strict=True)]
    plan = shuffle.plan("t", *sets, num_keys=64)
    for combining in plan.combinings:
        shuffle.combine(combining)
    for each in (each for partition in plan.partitions for each in shuffle.slices(partition)):
        assert [table["key"].to_pylist() for table in each.sets] == [
            [key for key in each.keys if key % step == 0] for step in (1, 16)
        ]
