"""Arrays that are sorted and joined over files are what they would be in memory."""

from pathlib import Path

import numpy as np
import pytest

from deeped_ray.storage.arrays import concatenate_arrays, in_ranges, joining


@pytest.mark.parametrize("max_rows", [7, 100, 10_000])
def test_rows_by_ranges_of_hashes_are_all_rows_in_the_order_of_hashes(tmp_path: Path, max_rows: int) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64 - 1, 1000, np.uint64, endpoint=True)
    hashes[:3] = 0, 2**64 - 1, hashes[5]
    borders = [0, 400, 400, 1000]
    pieces = [tmp_path / str(number) for number in range(3)]
    for piece, first, end in zip(pieces, borders[:-1], borders[1:], strict=True):
        np.save(f"{piece}.key.npy", hashes[first:end])
        np.save(f"{piece}.value.npy", np.arange(first, end))
    with joining(tmp_path, "keys", "values") as add:
        for numbers, place, keys, values in in_ranges(pieces, "key", "value", max_rows=max_rows):
            assert len(keys) <= 3 * max_rows
            assert (np.array(borders)[numbers] + place).tolist() == values.tolist()
            order = np.argsort(keys, kind="stable")
            add(keys[order], values[order])
    assert np.load(tmp_path / "keys.npy").tolist() == np.sort(hashes).tolist()
    assert np.load(tmp_path / "values.npy").tolist() == np.argsort(hashes, kind="stable").tolist()


def test_a_joined_file_has_the_bytes_of_one_that_was_saved(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.arange(5, dtype=np.int32))
    pieces = [tmp_path / f"{first}.npy" for first in (0, 2, 3)]
    for piece, values in zip(pieces, ([0, 1], [], [2, 3, 4]), strict=True):
        np.save(piece, np.array(values, np.int32))
    concatenate_arrays(pieces, tmp_path / "joined.npy")
    assert (tmp_path / "joined.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
