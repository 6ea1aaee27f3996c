"""Section 3: the written-out gradient, the sampling, the sphere."""

import numpy as np
import pytest
import torch

from deeped_ray.embeddings import objective
from deeped_ray.embeddings.objective import WordBag


def sampled_problem(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    z = objective.project(torch.randn(3, 6, dtype=torch.float64))
    return z, torch.randn(3, 4, 6, dtype=torch.float64), torch.randn(3, 4, 5, 6, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_equals_autograd(seed: int) -> None:
    z, x_pos, x_neg = sampled_problem(seed)
    z.requires_grad_()
    objective.objective(z, x_pos, x_neg, gamma=0.1).sum().backward()
    assert z.grad is not None
    torch.testing.assert_close(objective.gradient(z.detach(), x_pos, x_neg, gamma=0.1), z.grad)


def test_objective_equals_the_plain_loop_version() -> None:
    z, x_pos, x_neg = sampled_problem()
    for e in range(3):
        terms = [max(0.0, 0.1 - float(z[e] @ (x_pos[e, p] - x_neg[e, p, n]))) for p in range(4) for n in range(5)]
        assert objective.objective(z, x_pos, x_neg, gamma=0.1)[e].item() == pytest.approx(sum(terms) / len(terms))


def test_noise_distribution_is_the_smoothed_unigram() -> None:
    cumulative = objective.noise_cdf(np.array([1, 32, 243]), alpha=0.6)
    weights = np.array([1.0, 8.0, 27.0])  # 32^0.6 = 8, 243^0.6 = 27
    np.testing.assert_allclose(np.diff(cumulative, prepend=0), weights / 36)


def test_positives_follow_the_bag_and_negatives_the_noise() -> None:
    bag = WordBag(np.array([4, 9]), np.array([3.0, 1.0]))
    noise = objective.noise_cdf(np.array([1, 0, 3]), alpha=1.0)
    draws = objective.draw(bag, noise, np.random.default_rng(0), steps=500, num_positives=20, num_negatives=5)
    assert set(np.unique(draws.positives)) == {4, 9}
    assert np.mean(draws.positives == 4) == pytest.approx(0.75, abs=0.02)
    assert set(np.unique(draws.negatives)) == {0, 2}
    assert np.mean(draws.negatives == 2) == pytest.approx(0.75, abs=0.01)


def test_exact_objective_equals_the_plain_double_loop() -> None:
    rng = np.random.default_rng(0)
    z, x_pos, x_neg = (rng.standard_normal(shape).astype(np.float32) for shape in ((6,), (4, 6), (9, 6)))
    weights = np.array([1.0, 5.0, 2.0, 1.0])
    terms = [[max(0.0, 0.3 - float(z @ (p - n))) for n in x_neg] for p in x_pos]
    expected = weights @ np.mean(terms, axis=1) / weights.sum()
    assert objective.exact_objective(z, x_pos, weights, x_neg, gamma=0.3) == pytest.approx(expected, rel=1e-5)
