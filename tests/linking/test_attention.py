"""Section 4 against a version with plain loops, and its invariants."""

import math

import torch

from deeped_ray.linking import attention
from deeped_ray.linking.batching import Batch
from tests.conftest import random_batch


def local_scores(batch: Batch, A: torch.Tensor, B: torch.Tensor, R: int) -> tuple[torch.Tensor, torch.Tensor]:
    padded = batch.padded
    a_scores, b_scores = (attention.bilinear(padded.entity_vectors, form, padded.word_vectors) for form in (A, B))
    u = attention.support(padded.gather_context(a_scores), batch.is_candidate)
    beta = attention.attention(u, attention.keep_best_words(u, padded.is_word, R=R))
    return attention.context_score(padded.gather_context(b_scores), beta), beta


def local_scores_by_loops(batch: Batch, A: torch.Tensor, B: torch.Tensor, R: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper's equations read aloud: one mention, one word, one candidate at a time."""
    psi = torch.zeros(batch.is_candidate.shape, dtype=torch.float64)
    betas = torch.zeros(batch.padded.context.shape, dtype=torch.float64)
    for b, (document, entity_vectors, word_vectors) in enumerate(batch.one_by_one()):
        for i in range(len(document)):
            entities = entity_vectors[document.candidates[i, : document.num_candidates[i]]]
            words = word_vectors[document.context[i, : document.num_words[i]]]
            u = [max(float((e * A * w).sum()) for e in entities) for w in words]
            kept = sorted(range(len(words)), key=lambda k: -u[k])[:R]
            total = sum(math.exp(u[k]) for k in kept)
            for k in kept:
                betas[b, i, k] = math.exp(u[k]) / total
            for s, e in enumerate(entities):
                psi[b, i, s] = sum(betas[b, i, k] * (e * B * words[k]).sum() for k in kept)
    return psi, betas


def test_local_scores_equal_the_plain_loop_version() -> None:
    batch = random_batch(seed=1)
    torch.manual_seed(0)
    A, B = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    for R in (1, 3, 100):
        psi, beta = local_scores(batch, A, B, R)
        expected_psi, expected_beta = local_scores_by_loops(batch, A, B, R)
        torch.testing.assert_close(beta, expected_beta)
        torch.testing.assert_close(psi * batch.is_candidate, expected_psi)


def test_attention_weights_sum_to_one_over_at_most_r_words() -> None:
    batch = random_batch(seed=2)
    ones = torch.ones(5, dtype=torch.float64)
    _, beta = local_scores(batch, ones, ones, 2)
    torch.testing.assert_close(beta.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    assert (beta > 0).sum(dim=-1).max() == 2


def test_words_that_tie_for_the_last_place_do_not_exceed_r() -> None:
    u = torch.tensor([[[1.0, 1.0, 1.0, 1.0]]])
    kept = attention.keep_best_words(u, torch.ones(1, 1, 4, dtype=torch.bool), R=2)
    assert kept.sum() == 2


def test_an_empty_context_attends_to_nothing_and_scores_zero() -> None:
    batch = random_batch(seed=3)
    batch.padded.is_word[0, 0] = False
    ones = torch.ones(5, dtype=torch.float64)
    psi, beta = local_scores(batch, ones, ones, 3)
    assert beta[0, 0].abs().sum() == 0
    assert psi[0, 0].abs().sum() == 0
    assert torch.isfinite(psi).all()


def test_gradients_of_local_scores_pass_gradcheck() -> None:
    batch = random_batch(seed=4)
    A = torch.rand(5, dtype=torch.float64, requires_grad=True)
    B = torch.rand(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A, B: local_scores(batch, A, B, 3)[0], (A, B))
