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


def test_every_step_ends_on_the_unit_sphere() -> None:
    z, x_pos, x_neg = sampled_problem()
    optimizer = objective.Adagrad(10 * z, learning_rate=0.3)
    for _ in range(3):
        optimizer.step(objective.gradient(optimizer.z, x_pos, x_neg, gamma=0.1))
        torch.testing.assert_close(optimizer.z.norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_first_adagrad_step_moves_every_coordinate_by_the_learning_rate() -> None:
    z, x_pos, x_neg = sampled_problem()
    optimizer = objective.Adagrad(z, learning_rate=0.3)
    grad = objective.gradient(z, x_pos, x_neg, gamma=0.1)
    optimizer.step(grad)
    torch.testing.assert_close(optimizer.z, objective.project(z - 0.3 * grad.sign()), atol=1e-6, rtol=0)


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


def test_minimising_separates_own_words_from_noise() -> None:
    words = torch.nn.functional.normalize(torch.randn(50, 16, generator=torch.Generator().manual_seed(0)), dim=-1)
    bag = WordBag(np.array([0, 1, 2]), np.ones(3))
    noise = objective.noise_cdf(np.ones(50, dtype=np.int64), alpha=0.6)
    draws = objective.draw(bag, noise, np.random.default_rng(1), steps=200, num_positives=20, num_negatives=5)
    optimizer = objective.Adagrad(torch.randn(1, 16, generator=torch.Generator().manual_seed(2)), learning_rate=0.3)
    steps = [
        (torch.from_numpy(p)[None], torch.from_numpy(n)[None])
        for p, n in zip(draws.positives, draws.negatives, strict=True)
    ]
    objective.minimize(optimizer, words, steps, gamma=0.1)
    similarity = (words @ optimizer.z[0]).numpy()
    assert similarity[:3].min() > np.sort(similarity[3:])[-5]
