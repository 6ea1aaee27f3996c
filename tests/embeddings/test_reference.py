"""The paper's own optimisation: Adagrad on the sphere."""

import numpy as np
import pytest
import torch

from deeped_ray.embeddings import objective, reference
from deeped_ray.embeddings.config import ReferenceConfig
from deeped_ray.embeddings.evidence import Bags, Evidence, bags_of
from deeped_ray.embeddings.objective import WordBag
from deeped_ray.types import DeepEdError
from tests.embeddings.test_objective import sampled_problem

QUICK = ReferenceConfig(page_steps=30, link_steps=10)
WORDS = torch.nn.functional.normalize(torch.randn(50, 16, generator=torch.Generator().manual_seed(0)), dim=-1)
NOISE = objective.noise_cdf(np.ones(50, dtype=np.int64), alpha=0.6)


def bags(*rows: list[int]) -> Bags:
    return bags_of([np.array(row, dtype=np.int64) for row in rows])


def test_every_step_ends_on_the_unit_sphere() -> None:
    z, x_pos, x_neg = sampled_problem()
    optimizer = reference.Adagrad(10 * z, learning_rate=0.3)
    for _ in range(3):
        optimizer.step(objective.gradient(optimizer.z, x_pos, x_neg, gamma=0.1))
        torch.testing.assert_close(optimizer.z.norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_first_adagrad_step_moves_every_coordinate_by_the_learning_rate() -> None:
    z, x_pos, x_neg = sampled_problem()
    optimizer = reference.Adagrad(z, learning_rate=0.3)
    grad = objective.gradient(z, x_pos, x_neg, gamma=0.1)
    optimizer.step(grad)
    torch.testing.assert_close(optimizer.z, objective.project(z - 0.3 * grad.sign()), atol=1e-6, rtol=0)


def test_minimising_separates_own_words_from_noise() -> None:
    words = torch.nn.functional.normalize(torch.randn(50, 16, generator=torch.Generator().manual_seed(0)), dim=-1)
    bag = WordBag(np.array([0, 1, 2]), np.ones(3))
    noise = objective.noise_cdf(np.ones(50, dtype=np.int64), alpha=0.6)
    draws = objective.draw(bag, noise, np.random.default_rng(1), steps=200, num_positives=20, num_negatives=5)
    optimizer = reference.Adagrad(torch.randn(1, 16, generator=torch.Generator().manual_seed(2)), learning_rate=0.3)
    steps = [
        (torch.from_numpy(p)[None], torch.from_numpy(n)[None])
        for p, n in zip(draws.positives, draws.negatives, strict=True)
    ]
    reference.minimize(optimizer, words, steps, gamma=0.1)
    similarity = (words @ optimizer.z[0]).numpy()
    assert similarity[:3].min() > np.sort(similarity[3:])[-5]


def test_an_entity_does_not_depend_on_its_neighbours() -> None:
    evidence = Evidence(bags([1, 2, 2], [3], []), bags([4], [], [5, 6]), bags([1], [3], [5]))
    alone = Evidence(bags([]), bags([5, 6]), bags([5]))
    together = reference.embed(evidence, [7, 8, 9], WORDS, NOISE, QUICK, block_entities=2)
    np.testing.assert_array_equal(together[2:], reference.embed(alone, [9], WORDS, NOISE, QUICK))


def test_the_page_phase_comes_first_and_is_the_only_one_without_link_steps() -> None:
    evidence = Evidence(bags([1, 2, 2]), bags([40]), bags([1]))
    problems = reference.problems_of(evidence, [7], QUICK)
    page, later = reference.stages(problems, WORDS, NOISE, QUICK, [0, 200])
    assert page[0] @ WORDS[2] > page[0] @ WORDS[40]
    assert later[0] @ WORDS[40] > page[0] @ WORDS[40]


def test_an_entity_of_which_nothing_is_known_has_the_zero_vector() -> None:
    vectors = reference.embed(Evidence(bags([]), bags([]), bags([])), [1], WORDS, NOISE, QUICK)
    assert not vectors.any()


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(DeepEdError, match="positive"):
        ReferenceConfig(gamma=0.0)
