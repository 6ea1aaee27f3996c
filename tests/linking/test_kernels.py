"""The fused kernels against the equations in torch: values and gradients."""

from typing import Any

import numpy as np
import pytest
import torch

from deeped_ray.linking import attention, differentiable, kernels, lbp
from deeped_ray.linking.batching import Batch
from deeped_ray.linking.compiling import compiled
from tests.conftest import random_batch
from tests.linking.test_attention import local_scores


def ragged_batch(seed: int) -> Batch:
    """Some mentions without candidates, some without words."""
    return random_batch(B=3, n=6, S=4, K=9, least=0, seed=seed, dtype=torch.float32)


def forms(seed: int, *, full: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn((5, 5) if full else (5,), generator=generator).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("R", [1, 4, 9])
@pytest.mark.parametrize("seed", range(4))
def test_attend_is_the_attention_of_section_4(seed: int, R: int, full: bool) -> None:
    batch = ragged_batch(seed)
    A, B = forms(seed, full=full)
    psi = local_scores(batch, A, B, R)[0] * batch.is_candidate
    weights = torch.randn(psi.shape, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad((psi * weights).sum(), (A, B))
    fused, fused_beta = differentiable.attend(A, B, batch, R=R)
    torch.testing.assert_close(fused, psi, atol=1e-5, rtol=1e-4)
    totals = fused_beta.sum(dim=-1)[batch.is_candidate.any(dim=-1) & batch.padded.is_word.any(dim=-1)]
    torch.testing.assert_close(totals, torch.ones_like(totals))
    for gradient, other in zip(torch.autograd.grad((fused * weights).sum(), (A, B)), expected, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("excludes_receiver", [True, False])
@pytest.mark.parametrize(("delta", "T"), [(0.5, 1), (0.5, 10), (0.9, 3), (0.3, 40)])
@pytest.mark.parametrize("seed", range(3))
def test_propagate_is_the_message_passing_of_section_5(
    seed: int, delta: float, T: int, excludes_receiver: bool
) -> None:
    batch = ragged_batch(seed)
    generator = torch.Generator().manual_seed(seed)
    psi = torch.randn(batch.candidates.shape, generator=generator).requires_grad_()
    (C, _) = forms(seed, full=seed == 2)
    scale = lbp.pairwise_scale(batch.is_candidate.any(dim=-1))
    weights = torch.randn(psi.shape, generator=generator) * batch.is_candidate
    entities = batch.padded.entity_vectors
    phi = lbp.pairwise(batch.padded.gather_pairs(attention.bilinear(entities, C, entities)), scale)
    mu = lbp.propagate(psi, phi, batch.is_candidate, delta=delta, T=T, excludes_receiver=excludes_receiver)
    expected = torch.autograd.grad((mu * weights).sum(), (psi, C))
    fused = differentiable.propagate(psi, C, scale, batch, delta=delta, T=T, excludes_receiver=excludes_receiver)
    torch.testing.assert_close(fused * batch.is_candidate, mu * batch.is_candidate, atol=1e-4, rtol=1e-4)
    for gradient, other in zip(torch.autograd.grad((fused * weights).sum(), (psi, C)), expected, strict=True):
        torch.testing.assert_close(gradient, other, atol=2e-4, rtol=1e-3)


def test_without_gradients_the_answer_is_the_same() -> None:
    batch = ragged_batch(0)
    C, _ = forms(0, full=False)
    scale = lbp.pairwise_scale(batch.is_candidate.any(dim=-1))
    psi = torch.randn(batch.candidates.shape)

    def mu() -> torch.Tensor:
        return differentiable.propagate(psi, C, scale, batch, delta=0.5, T=10, excludes_receiver=True)

    with torch.inference_mode():
        alone = mu()
    assert torch.equal(alone, mu())


def test_exponential_and_logarithm_are_accurate() -> None:
    x = -np.geomspace(1e-6, 80, 1000).astype(np.float32)
    exponential = np.array([kernels.exp(value) for value in x])
    np.testing.assert_allclose(exponential, np.exp(x.astype(np.float64)), rtol=5e-7)
    assert kernels.exp(np.float32(-1e30)) < 1e-37
    assert kernels.exp(np.float32(0)) == 1
    positive = np.geomspace(1e-36, 1, 1000).astype(np.float32)
    logarithm = np.array([kernels.log(value) for value in positive])
    np.testing.assert_allclose(logarithm, np.log(positive.astype(np.float64)), rtol=3e-7, atol=1e-7)


def test_messages_that_would_vanish_are_left_to_torch() -> None:
    batch = ragged_batch(0)
    assert differentiable.can_propagate(batch, delta=0.5, T=100)
    assert not differentiable.can_propagate(batch, delta=1.0, T=1)
    assert not differentiable.can_propagate(batch, delta=0.9, T=100)
    assert not differentiable.can_propagate(batch.to(torch.float64), delta=0.5, T=10)


def test_kernels_are_compiled_where_no_folder_can_keep_them() -> None:
    scope: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", scope)  # from no file, so that numba finds no place for its cache
    assert compiled(scope["double"])(3) == 6
