from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.knowledge import strings
from deeped_ray.knowledge.strings import StringIndex, hash_order, numbers_of, take_strings, write_strings


def index_of(folder: Path, values: list[str]) -> StringIndex:
    write_strings(folder, "test", [values[row] for row in hash_order(values)])
    return StringIndex(folder, "test")


@settings(max_examples=25)
@given(st.sets(st.text(max_size=12), min_size=1))
def test_every_string_is_found_at_its_row_and_no_other_is(
    tmp_path_factory: pytest.TempPathFactory, values: set[str]
) -> None:
    index = index_of(tmp_path_factory.mktemp("strings"), sorted(values))
    assert len(index) == len(values)
    rows = [index.find(value) for value in values]
    assert {index[row] for row in rows if row is not None} == values
    assert index.find("a string that is longer than twelve characters") is None


def test_strings_with_the_same_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "hash64", lambda string: len(string))
    index = index_of(tmp_path, ["ab", "cd", "ef", "xyz"])
    assert [index[row] for value in ("ab", "cd", "ef") if (row := index.find(value)) is not None] == ["ab", "cd", "ef"]
    assert index.find("zz") is None


@pytest.mark.parametrize("values", [[3, -1, 2**40], [True, False, True], []])
def test_numbers_of_a_column_are_those_of_arrow(values: list[int]) -> None:
    column = pa.array(values, None if values else pa.int64())
    expected = column.to_numpy(zero_copy_only=False)
    assert numbers_of(column).dtype == expected.dtype
    np.testing.assert_array_equal(numbers_of(column), expected)


def test_strings_are_taken_in_the_order_of_the_rows() -> None:
    names = pa.array(["a", "b", "c", "d"])
    assert take_strings(names, np.array([3, 0, 3, 1])[::2]) == ["d", "d"]
    assert take_strings(names, np.array([], np.int64)) == []
