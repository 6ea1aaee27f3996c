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


def test_some_rows_are_replaced_and_the_first_layer_stays_as_it_is() -> None:
    layers = Layers(OWN, EXTRA, {2: np.array([7, 8]), 0: np.array([5, 6])})
    assert layers[np.array([0, 1, 2, 3, 2])].tolist() == [[5, 6], [2, 3], [7, 8], [10, 11], [7, 8]]
    assert (layers[2].tolist(), layers[np.array([], np.int64)].shape) == ([7, 8], (0, 2))
    assert Layers(OWN, None, {1: np.array([9, 9])})[np.array([0, 1])].tolist() == [[0, 1], [9, 9]]
    assert OWN.tolist() == [[0, 1], [2, 3], [4, 5]]
