"""The model as linking uses it against the model as training does."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deeped_ray.linking import attention, kernels, lbp
from deeped_ray.linking.batching import Batch
from deeped_ray.linking.config import ModelConfig, ModelKind
from deeped_ray.linking.model import LinkerModel
from deeped_ray.linking.scoring import FittedModel, Scored, weight_shapes
from tests.conftest import random_batch

SETTINGS: list[dict[str, Any]] = [
    {"variant": "deep-ed"},
    {"variant": "paper"},
    {"forms": "diagonal", "rounds": 10},
    {"unary": "score", "hidden_units": 7},
    {"product": "sum"},
    {"damping": 1.0, "variant": "paper"},
]


def fitted(kind: ModelKind, settings: dict[str, Any]) -> tuple[LinkerModel, FittedModel]:
    """The same random weights in both."""
    torch.manual_seed(3)
    config = ModelConfig(**settings)
    model = LinkerModel(kind, config, dimension=5, num_evidence=2)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    assert {name: weight.shape for name, weight in weights.items()} == weight_shapes(
        kind, config, dimension=5, num_evidence=2
    )
    return model, FittedModel(kind, config, weights)


def scored(model: FittedModel, batch: Batch) -> list[Scored]:
    return [
        model.score(
            replace(document, entities=np.arange(len(e)), words=np.arange(len(w))), model.fold(e.numpy(), w.numpy())
        )
        for document, e, w in batch.one_by_one()
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["local", "global"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_linking_computes_what_training_does(settings: dict[str, Any], kind: ModelKind, seed: int) -> None:
    batch = random_batch(B=3, n=6, S=4, K=9, F=2, least=0, seed=seed, dtype=torch.float32)
    model, ours = fitted(kind, settings)
    with torch.inference_mode():
        expected = model(batch)
    for b, each in enumerate(scored(ours, batch)):
        np.testing.assert_allclose(each.rho, expected.rho[b], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(each.psi, expected.psi[b], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(each.beta, expected.beta[b], atol=1e-5)
        if each.belief is not None:
            np.testing.assert_allclose(each.belief, expected.belief[b], atol=1e-4)


def test_support_is_what_a_change_of_the_answer_would_cost() -> None:
    batch = random_batch(least=2, d=5, F=2, dtype=torch.float32)
    model, ours = fitted("global", {})
    entities = batch.padded.entity_vectors
    scale = model.config.psi_scale * lbp.pairwise_scale(batch.is_candidate.any(dim=-1), counts_itself=True)
    phi = lbp.pairwise(batch.padded.gather_pairs(attention.bilinear(entities, model.C, entities)), scale)
    for b, each in enumerate(scored(ours, batch)):
        assert each.support is not None
        order = np.argsort(-each.rho, axis=1)
        for i, j in itertools.product(range(3), range(3)):
            answer, rival, other = order[i, 0], order[i, 1], order[j, 0]
            expected = phi[b, i, j, answer, other] - phi[b, i, j, rival, other]
            assert each.support[i, j] == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize(("num_x", "num_y", "d"), [(1, 1, 1), (3, 5, 2), (4, 2, 300), (9, 7, 33), (0, 3, 4)])
def test_dots_are_all_inner_products(num_x: int, num_y: int, d: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((number, d), dtype=np.float32) for number in (num_x, num_y))
    result = np.empty((num_x, num_y), np.float32)
    kernels.dots(x, y, result)
    np.testing.assert_allclose(result, x @ y.T, rtol=1e-4, atol=1e-4)
