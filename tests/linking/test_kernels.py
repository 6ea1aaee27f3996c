"""The fused kernels against the equations in torch: values and gradients."""

import pytest
import torch

from deeped_ray.linking import attention, kernels, lbp
from deeped_ray.linking.batching import Batch
from tests.conftest import random_batch


def ragged_batch(seed: int) -> Batch:
    """Some mentions without candidates, some without words."""
    return random_batch(B=3, n=6, S=4, K=9, least=0, seed=seed, dtype=torch.float32)


def scores_of(batch: Batch, *, seed: int) -> list[torch.Tensor]:
    B, E, W = batch.entity_vectors.shape[0], batch.entity_vectors.shape[1], batch.word_vectors.shape[1]
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, E, W, generator=generator).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("R", [1, 4, 9])
@pytest.mark.parametrize("seed", range(5))
def test_attend_is_the_attention_of_section_4(seed: int, R: int) -> None:
    batch = ragged_batch(seed)
    a_scores, b_scores = scores_of(batch, seed=seed)
    u = attention.support(batch.gather_context(a_scores), batch.is_candidate)
    beta = attention.attention(u, attention.keep_best_words(u, batch.is_word, R=R))
    psi = attention.context_score(batch.gather_context(b_scores), beta) * batch.is_candidate
    weights = torch.randn(psi.shape, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad((psi * weights).sum(), (a_scores, b_scores))
    fused, fused_beta = kernels.attend(a_scores, b_scores, batch, R=R)
    torch.testing.assert_close(fused, psi)
    has_candidates = batch.is_candidate.any(dim=-1)
    totals = fused_beta.sum(dim=-1)[has_candidates & batch.is_word.any(dim=-1)]
    torch.testing.assert_close(totals, torch.ones_like(totals))
    for gradient, other in zip(
        torch.autograd.grad((fused * weights).sum(), (a_scores, b_scores)), expected, strict=True
    ):
        torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("excludes_receiver", [True, False])
@pytest.mark.parametrize(("delta", "T"), [(0.5, 1), (0.5, 10), (0.9, 3), (0.3, 40)])
@pytest.mark.parametrize("seed", range(3))
def test_propagate_is_the_message_passing_of_section_5(
    seed: int, delta: float, T: int, excludes_receiver: bool
) -> None:
    batch = ragged_batch(seed)
    B, n, S = batch.candidates.shape
    generator = torch.Generator().manual_seed(seed)
    psi = torch.randn(B, n, S, generator=generator).requires_grad_()
    scores = torch.randn(B, 7, 7, generator=generator)
    scores = (scores + scores.transpose(1, 2)).requires_grad_()
    scale = lbp.pairwise_scale(batch.is_candidate.any(dim=-1))
    weights = torch.randn(psi.shape, generator=generator) * batch.is_candidate
    phi = lbp.pairwise(batch.gather_pairs(scores), scale)
    mu = lbp.propagate(psi, phi, batch.is_candidate, delta=delta, T=T, excludes_receiver=excludes_receiver)
    expected = torch.autograd.grad((mu * weights).sum(), (psi, scores))
    fused = kernels.propagate(psi, scores, scale, batch, delta=delta, T=T, excludes_receiver=excludes_receiver)
    torch.testing.assert_close(fused * batch.is_candidate, mu * batch.is_candidate, atol=1e-5, rtol=1e-4)
    for gradient, other in zip(torch.autograd.grad((fused * weights).sum(), (psi, scores)), expected, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-4, rtol=1e-3)


def test_without_gradients_the_answer_is_the_same() -> None:
    batch = ragged_batch(0)
    a_scores, b_scores = scores_of(batch, seed=0)
    scale = lbp.pairwise_scale(batch.is_candidate.any(dim=-1))
    psi, _ = kernels.attend(a_scores, b_scores, batch, R=4)
    scores = torch.randn(3, 7, 7)

    def mu(scores: torch.Tensor) -> torch.Tensor:
        return kernels.propagate(psi, scores, scale, batch, delta=0.5, T=10, excludes_receiver=True)

    with torch.inference_mode():
        alone = mu(scores)
    assert torch.equal(alone, mu(scores.requires_grad_()))


def test_messages_that_would_vanish_are_left_to_torch() -> None:
    psi = torch.zeros(1, 1, 1)
    assert kernels.can_propagate(psi, delta=0.5, T=100)
    assert not kernels.can_propagate(psi, delta=1.0, T=1)
    assert not kernels.can_propagate(psi, delta=0.9, T=100)
    assert not kernels.can_propagate(psi.double(), delta=0.5, T=10)
