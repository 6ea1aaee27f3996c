import numpy as np

from deeped_ray.linking.folded import Folded

RNG = np.random.default_rng(0)
VECTORS, A, B = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((50, 7), (7, 7), (7, 7)))


def test_rows_are_products_with_each_form() -> None:
    found = Folded(VECTORS, [A, B]).take(np.array([3, 49, 0]))
    for form, rows in zip((A, B), found, strict=True):
        np.testing.assert_allclose(rows, VECTORS[[3, 49, 0]] @ form, rtol=1e-5, atol=1e-5)


def test_rows_are_the_same_bytes_whether_they_were_kept_or_not() -> None:
    small, fresh = Folded(VECTORS, [A], slots=8), Folded(VECTORS, [A], slots=8)
    for _ in range(20):
        rows = RNG.permutation(50)[: RNG.integers(1, 50)]
        assert small.take(rows).tobytes() == b"".join(fresh.take(rows[i : i + 1]).tobytes() for i in range(len(rows)))
