from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge.csr import Csr, join_csr, write_csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location


@pytest.fixture
def table(tmp_path: Path) -> Csr:
    """Rows [10, 11], [], [12] in two pieces."""
    write_csr(tmp_path / "a", np.array([2, 0]), words=np.array([10, 11], np.int32), counts=np.array([1, 2], np.float32))
    write_csr(tmp_path / "b", np.array([1]), words=np.array([12], np.int32), counts=np.array([3], np.float32))
    join_csr([tmp_path / "a", tmp_path / "b"], tmp_path / "table", ["words", "counts"])
    return Csr(Part("corpus", "0", Location(tmp_path), {}), "table", ["words", "counts"])


def test_rows_of_pieces_follow_each_other(table: Csr) -> None:
    rows = [[column.tolist() for column in table.row(number)] for number in range(len(table))]
    assert rows == [[[10, 11], [1, 2]], [[], []], [[12], [3]]]


def test_columns_keep_their_types_and_are_mapped(table: Csr) -> None:
    assert [column.dtype for column in table.columns] == [np.int32, np.float32]
    assert not any(column.flags.owndata or column.flags.writeable for column in table.columns)


def test_tables_without_cells_can_be_joined(tmp_path: Path) -> None:
    write_csr(tmp_path / "a", np.array([0, 0]), words=np.zeros(0, np.int32))
    join_csr([tmp_path / "a"], tmp_path / "table", ["words"])
    empty = Csr(Part("corpus", "0", Location(tmp_path), {}), "table", ["words"])
    assert [empty.row(number)[0].tolist() for number in range(len(empty))] == [[], []]
