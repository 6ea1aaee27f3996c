from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.folded import WIDTH, Folded
from deeped_ray.linking.remembered import Slots

RNG = np.random.default_rng(0)
VECTORS, A, B = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((50, 7), (7, 7), (7, 7)))


def rows_of(folded: Folded, rows: np.ndarray) -> np.ndarray:
    table, slots = folded.take(rows)
    return table[slots]


def test_rows_are_products_with_each_form() -> None:
    found = rows_of(Folded(Layers(VECTORS), [A, B]), np.array([3, 49, 0]))
    for place, form in enumerate((A, B)):
        np.testing.assert_allclose(found[:, place, :7], VECTORS[[3, 49, 0]] @ form.T, rtol=1e-5, atol=1e-5)
    assert found.shape == (3, 2, WIDTH)
    assert not found[:, :, 7:].any()


def test_rows_are_the_same_bytes_whether_they_were_kept_or_not() -> None:
    small, fresh = (Folded(Layers(VECTORS), [A], slots=8) for _ in range(2))
    for _ in range(20):
        rows = RNG.permutation(50)[: RNG.integers(1, 50)]
        alone = b"".join(rows_of(fresh, rows[i : i + 1]).tobytes() for i in range(len(rows)))
        assert rows_of(small, rows).tobytes() == alone


def test_rows_that_another_thread_has_added_meanwhile_are_found() -> None:
    folded, rows = Folded(Layers(VECTORS), [A, B]), np.array([3, 49, 0])
    before = rows_of(folded, rows).tobytes()
    table, slots = folded._add(rows)  # as if it had found them missing just before
    assert table[slots].tobytes() == before


def test_threads_that_ask_at_once_get_the_same_bytes() -> None:
    folded, rows = Folded(Layers(VECTORS), [A, B], slots=16), [RNG.permutation(50)[:12] for _ in range(200)]
    expected = [rows_of(Folded(Layers(VECTORS), [A, B]), each).tobytes() for each in rows]
    with ThreadPoolExecutor(4) as threads:
        assert [found.tobytes() for found in threads.map(lambda each: rows_of(folded, each), rows)] == expected


def test_other_vectors_are_multiplied_with_the_same_forms() -> None:
    longer = Layers(VECTORS, VECTORS[:1])
    folded = Folded(Layers(VECTORS), [A]).of(longer)
    assert rows_of(folded, np.array([50])).tobytes() == rows_of(folded, np.array([0])).tobytes()


def test_every_number_keeps_its_slot() -> None:
    slots, numbers = Slots(100), RNG.permutation(10**6)[:100]
    for number in range(0, 100, 20):
        assert slots.find(numbers)[1] == 100 - number
        slots.add(numbers[number : number + 20])
    assert slots.find(numbers)[0].tolist() == [*range(100)]
