import numpy as np
import pytest

from deeped_ray.knowledge.layers import Layers

OWN, EXTRA = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[10, 11]], np.float32)


@pytest.mark.parametrize("rows", [[0, 2], [3], [3, 0, 3], []])
def test_rows_of_both_layers_are_those_of_one_table(rows: list[int]) -> None:
    joined = np.concatenate([OWN, EXTRA])
    asked = np.array(rows, np.int64)
    assert Layers(OWN, EXTRA)[asked].tolist() == joined[asked].tolist()
    assert Layers(OWN, EXTRA)[3].tolist() == [10, 11]


def test_without_further_rows_the_table_is_itself() -> None:
    layers = Layers(OWN)
    assert layers.shape == (3, 2)
    assert layers[1].tolist() == [2, 3]
    assert Layers(OWN, EXTRA).shape == (4, 2)
