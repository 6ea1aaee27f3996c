"""Section 3 in closed form, against brute force."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from deeped_ray.embeddings.closed_form import ClosedFormConfig, Noise, contrast, embed, noise_of
from deeped_ray.embeddings.evidence import Bags, Evidence, bags_of
from deeped_ray.types import DeepEdError

RNG = np.random.default_rng(0)
WORDS = RNG.standard_normal((40, 5)).astype(np.float32) @ np.diag([3, 2, 1, 1, 0.5]).astype(np.float32)
WORDS /= np.linalg.norm(WORDS, axis=1, keepdims=True)
COUNTS = RNG.integers(1, 100, 40)
NOISE = noise_of(WORDS, COUNTS, alpha=0.6)


def bags(*rows: list[int]) -> Bags:
    return bags_of([np.array(row, dtype=np.int64) for row in rows])


def embedded(evidence: Evidence, config: ClosedFormConfig = ClosedFormConfig()) -> np.ndarray:  # noqa: B008
    return embed(evidence, torch.from_numpy(contrast(WORDS, NOISE, ridge=config.ridge)), config)


def test_noise_moments_equal_the_plain_sums() -> None:
    q = COUNTS**0.6 / (COUNTS**0.6).sum()
    mean = sum(q[w] * WORDS[w] for w in range(40))
    covariance = sum(q[w] * np.outer(WORDS[w] - mean, WORDS[w] - mean) for w in range(40))
    np.testing.assert_allclose(NOISE.mean, mean, atol=1e-6)
    np.testing.assert_allclose(NOISE.covariance, covariance, atol=1e-6)


def objective(z: np.ndarray, mean: np.ndarray, noise: Noise, gamma: float) -> float:
    """J of the module's docstring: Gaussian negatives, the hinge at the mean of the positives."""
    z = z / np.linalg.norm(z)
    s = np.sqrt(z @ noise.covariance @ z)
    u = (gamma - z @ (mean - noise.mean)) / s
    return float(s * (u * norm.cdf(u) + norm.pdf(u)))


@pytest.mark.parametrize("gamma", [0.02, 0.1, 0.3, 1.0])
def test_the_minimiser_has_the_closed_form_with_the_ridge_of_its_margin(gamma: float) -> None:
    mean = WORDS[[1, 2, 2, 3]].mean(axis=0).astype(np.float64)
    starts = np.random.default_rng(1).standard_normal((10, 5))
    found = [minimize(objective, start, args=(mean, NOISE, gamma), tol=1e-12) for start in starts]
    best = min(found, key=lambda result: result.fun)
    z = best.x / np.linalg.norm(best.x)
    s = np.sqrt(z @ NOISE.covariance @ z)
    u = (gamma - z @ (mean - NOISE.mean)) / s
    lam = (gamma * norm.cdf(u) - best.fun) * s / norm.pdf(u)
    closed = np.linalg.solve(NOISE.covariance + lam * np.eye(5), mean - NOISE.mean)
    assert closed @ z / np.linalg.norm(closed) == pytest.approx(1, abs=1e-6)


def test_expected_hinge_equals_sampled_gaussian_negatives() -> None:
    z, mean = np.array([0.6, 0.8, 0, 0, 0]), WORDS[:4].mean(axis=0).astype(np.float64)
    negatives = RNG.multivariate_normal(NOISE.mean, NOISE.covariance, size=400_000)
    sampled = np.maximum(0, 0.1 - z @ mean + negatives @ z).mean()
    assert objective(z, mean, NOISE, 0.1) == pytest.approx(sampled, rel=0.01)


def test_vectors_are_weighted_sums_of_contrasts_by_plain_loop() -> None:
    evidence = Evidence(bags([1, 2, 2]), bags([3, 4]), bags([1]))
    contrasts = contrast(WORDS, NOISE, ridge=0.35).astype(np.float64)
    total = 0.7 * (contrasts[1] + 2 * contrasts[2]) / 3 + 0.3 * (contrasts[3] + contrasts[4]) / 2 + 0.05 * contrasts[1]
    np.testing.assert_allclose(embedded(evidence)[0], total / np.linalg.norm(total), atol=1e-5)


def test_an_infinite_ridge_gives_the_centroid() -> None:
    centroid = WORDS[[1, 2]].mean(axis=0) - NOISE.mean
    vectors = embedded(Evidence(bags([1, 2]), bags([]), bags([])), ClosedFormConfig(ridge=float("inf")))
    np.testing.assert_allclose(vectors[0], centroid / np.linalg.norm(centroid), atol=1e-5)


def test_absent_sources_give_their_share_away() -> None:
    config = ClosedFormConfig(title_share=0.0)
    only_links = embedded(Evidence(bags([], [1, 2]), bags([1, 2], []), bags([7], [8])), config)
    np.testing.assert_allclose(only_links[0], only_links[1], atol=1e-6)
    title = embedded(Evidence(bags([]), bags([]), bags([7])), config)
    assert title[0] @ contrast(WORDS, NOISE, ridge=0.35)[7] > 0


def test_nothing_known_is_the_zero_vector() -> None:
    assert not embedded(Evidence(bags([]), bags([]), bags([]))).any()


def test_an_entity_does_not_depend_on_its_neighbours_to_the_bit() -> None:
    rows = [RNG.integers(0, 40, 30).tolist() for _ in range(9)]
    links = [RNG.integers(0, 40, 5).tolist() for _ in range(9)]
    titles = [[1]] * 9
    together = embedded(Evidence(bags(*rows), bags(*links), bags(*titles)))
    for i in range(9):
        alone = embedded(Evidence(bags(rows[i]), bags(links[i]), bags([1])))
        np.testing.assert_array_equal(alone[0], together[i])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_within_rounding() -> None:
    evidence = Evidence(bags([1, 2, 2], [5]), bags([3, 4], []), bags([1], [5]))
    contrasts = torch.from_numpy(contrast(WORDS, NOISE, ridge=0.35))
    on_gpu = embed(evidence, contrasts.cuda(), ClosedFormConfig())
    np.testing.assert_allclose(on_gpu, embed(evidence, contrasts, ClosedFormConfig()), atol=1e-5)


@pytest.mark.parametrize("config", [{"ridge": 0.0}, {"ridge": float("nan")}, {"page_share": -1.0}])
def test_impossible_settings_are_refused(config: dict[str, float]) -> None:
    with pytest.raises(DeepEdError, match="must"):
        ClosedFormConfig(**config)
