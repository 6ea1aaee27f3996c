"""Sections 4 and 5 fused for processors: what `attention` and `lbp` say equation by equation, document by document.

Torch's operators write every intermediate of a padded batch to memory, forwards and backwards. Here a document stays in
the cache: padding is skipped, scores are read in place, and the backward pass follows the maxima found going forwards.
The compiled code runs without Python's lock, so that documents can go to several threads.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from deeped_ray.linking.batching import Batch

_LOWEST = np.float32(-1e30)
_TINY = 1e-37


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiler = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")
    compiled: Callable[..., Any] = compiler(inspect.unwrap(function))  # tests wrap every function in type checks
    return compiled


def attend(
    a_scores: Float[Tensor, "B E W"], b_scores: Float[Tensor, "B E W"], batch: Batch, *, R: int
) -> tuple[Float[Tensor, "B n S"], Float[Tensor, "B n K"]]:
    """Psi and beta from the bilinear scores of A and B."""
    return _Attend.apply(a_scores, b_scores, batch, R)  # type: ignore[no-any-return, no-untyped-call]


def propagate(
    psi: Float[Tensor, "B n S"],
    scores: Float[Tensor, "B E E"],
    scale: Float[Tensor, " B"],
    batch: Batch,
    *,
    delta: float,
    T: int,
    excludes_receiver: bool,
) -> Float[Tensor, "B n S"]:
    """mu after T rounds of damped max-product messages; Phi is `scale` times the bilinear scores of C."""
    return _Propagate.apply(psi, scores, scale, batch, delta, T, excludes_receiver)  # type: ignore[no-any-return, no-untyped-call]


def can_attend(scores: Tensor) -> bool:
    return scores.device.type == "cpu" and scores.dtype == torch.float32


def can_propagate(psi: Tensor, *, delta: float, T: int) -> bool:
    """Whether messages, kept as float32 probabilities, cannot vanish: they stay above (1 - delta)^T."""
    return psi.device.type == "cpu" and psi.dtype == torch.float32 and (1 - delta) ** T > _TINY


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_scores: Tensor, b_scores: Tensor, batch: Batch, R: int) -> tuple[Tensor, Tensor]:
        shape = _shape_of(batch)
        arrays = (a_scores.contiguous().numpy(), b_scores.contiguous().numpy(), *shape)
        psi = np.zeros(batch.candidates.shape, np.float32)
        beta = np.zeros(batch.context.shape, np.float32)
        strongest = np.zeros(batch.context.shape, np.int16)
        _attend(*arrays, R, psi, beta, strongest)
        ctx.kept = (*arrays, beta, strongest)
        ctx.mark_non_differentiable(weights := torch.from_numpy(beta))
        return torch.from_numpy(psi), weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        a_scores, b_scores, *rest = ctx.kept
        d_a, d_b = np.zeros_like(a_scores), np.zeros_like(b_scores)
        _attend_backward(b_scores, *rest, gradients[0].contiguous().numpy(), d_a, d_b)
        return torch.from_numpy(d_a), torch.from_numpy(d_b), None, None


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        psi: Tensor,
        scores: Tensor,
        scale: Tensor,
        batch: Batch,
        delta: float,
        T: int,
        excludes_receiver: bool,
    ) -> Tensor:
        candidates, num_candidates, *_ = _shape_of(batch)
        pairs = (scores.contiguous().numpy(), scale.numpy(), candidates, num_candidates)
        rounds = T if any(ctx.needs_input_grad) else 0
        B, n, S = psi.shape
        softmax, damped = (np.empty((max(rounds, 1), B, n, S, n), np.float32) for _ in range(2))
        strongest = np.empty((max(rounds, 1), B, n, S, n), np.int8)
        mu = np.zeros(psi.shape, np.float32)
        settings = (np.float32(delta), excludes_receiver)
        _propagate(psi.contiguous().numpy(), *pairs, *settings, T, rounds > 0, softmax, damped, strongest, mu)
        ctx.kept, ctx.settings = (*pairs[1:], softmax, damped, strongest), (*settings, T)
        ctx.scores_shape = scores.shape
        return torch.from_numpy(mu)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        d_mu = gradients[0].contiguous().numpy()
        d_psi, d_scores = np.zeros(d_mu.shape, np.float32), np.zeros(ctx.scores_shape, np.float32)
        _propagate_backward(d_mu, *ctx.kept, *ctx.settings, d_psi, d_scores)
        return torch.from_numpy(d_psi), torch.from_numpy(d_scores), None, None, None, None, None


def _shape_of(batch: Batch) -> tuple[Any, ...]:
    """Candidates and their numbers, context words and theirs: candidates and words stand first in their rows."""
    num_candidates, num_words = batch.is_candidate.sum(dim=-1), batch.is_word.sum(dim=-1)
    return tuple(tensor.numpy() for tensor in (batch.candidates, num_candidates, batch.context, num_words))


# -- compiled


@_compiled
def _length(num_candidates) -> int:  # type: ignore[no-untyped-def]
    """Mentions up to the last that has candidates: what follows is padding, or takes no part."""
    length = 0
    for i in range(len(num_candidates)):
        if num_candidates[i]:
            length = i + 1
    return length


@_compiled
def _attend(  # type: ignore[no-untyped-def]
    a_scores, b_scores, candidates, num_candidates, context, num_words, R, psi, beta, strongest
) -> None:
    K = context.shape[2]
    u, ordered = np.empty(K, np.float32), np.empty(K, np.float32)
    for b in range(candidates.shape[0]):
        for i in range(candidates.shape[1]):
            num, words = num_candidates[b, i], num_words[b, i]
            if num == 0 or words == 0:
                continue
            for k in range(words):
                u[k] = _LOWEST
            for s in range(num):
                e = candidates[b, i, s]
                for k in range(words):
                    value = a_scores[b, e, context[b, i, k]]
                    if value > u[k]:
                        u[k] = value
                        strongest[b, i, k] = e
            threshold, num_ties = _LOWEST, K
            if words > R:
                ordered[:words] = u[:words]
                ordered[:words].sort()
                threshold = ordered[words - R]
                num_ties = 0
                for k in range(words - R, words):
                    num_ties += ordered[k] == threshold
            highest = u[:words].max()
            total = np.float32(0)
            for k in range(words):
                if u[k] > threshold or (u[k] == threshold and num_ties > 0):
                    num_ties -= u[k] == threshold
                    beta[b, i, k] = np.exp(u[k] - highest)
                    total += beta[b, i, k]
            for k in range(words):
                beta[b, i, k] /= total
            for s in range(num):
                e = candidates[b, i, s]
                score = np.float32(0)
                for k in range(words):
                    score += beta[b, i, k] * b_scores[b, e, context[b, i, k]]
                psi[b, i, s] = score


@_compiled
def _attend_backward(  # type: ignore[no-untyped-def]
    b_scores, candidates, num_candidates, context, num_words, beta, strongest, d_psi, d_a, d_b
) -> None:
    d_beta = np.empty(context.shape[2], np.float32)
    for b in range(candidates.shape[0]):
        for i in range(candidates.shape[1]):
            num, words = num_candidates[b, i], num_words[b, i]
            if num == 0:
                continue
            d_beta[:] = 0
            for s in range(num):
                e, gradient = candidates[b, i, s], d_psi[b, i, s]
                for k in range(words):
                    w = context[b, i, k]
                    d_b[b, e, w] += gradient * beta[b, i, k]
                    d_beta[k] += gradient * b_scores[b, e, w]
            mean = np.float32(0)
            for k in range(words):
                mean += beta[b, i, k] * d_beta[k]
            for k in range(words):
                d_a[b, strongest[b, i, k], context[b, i, k]] += beta[b, i, k] * (d_beta[k] - mean)


@_compiled
def _propagate(  # type: ignore[no-untyped-def]
    psi,
    scores,
    scale,
    candidates,
    num_candidates,
    delta,
    excludes,
    T,
    keep,
    softmax,
    damped,
    strongest,
    mu,
) -> None:
    """Arrays of messages are [sender, candidate of the receiver, receiver]; `arrived` is [receiver, candidate, sender]."""
    n, S = psi.shape[1], psi.shape[2]
    phi = np.empty((n, S, S, n), np.float32)
    arrived = np.empty((n, S, n), np.float32)
    sent, leaving, highest = np.empty((n, S, n), np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    total = np.empty((n, S), np.float32)
    for b in range(psi.shape[0]):
        n = _length(num_candidates[b])
        for i in range(n):
            for s in range(num_candidates[b, i]):
                row = candidates[b, i, s]
                for r in range(S):
                    for j in range(n):
                        is_pair = j != i and r < num_candidates[b, j]
                        phi[i, s, r, j] = scale[b] * scores[b, row, candidates[b, j, r]] if is_pair else _LOWEST
        arrived[:] = 0
        for t in range(T):
            kept, before = (t, t - 1) if keep else (0, 0)
            for i in range(n):
                for s in range(num_candidates[b, i]):
                    total[i, s] = psi[b, i, s] + arrived[i, s, :n].sum()
            for i in range(n):
                if num_candidates[b, i] == 0:
                    continue
                raw, origin = softmax[kept, b, i], strongest[kept, b, i]
                raw[:] = 2 * _LOWEST
                for s in range(num_candidates[b, i]):
                    for j in range(n):
                        leaving[j] = total[i, s] - arrived[i, s, j] if excludes else total[i, s]
                    for r in range(S):
                        for j in range(n):
                            value = leaving[j] + phi[i, s, r, j]
                            is_higher = value > raw[r, j]
                            raw[r, j] = value if is_higher else raw[r, j]
                            origin[r, j] = s if is_higher else origin[r, j]
                highest[:] = 2 * _LOWEST
                for r in range(S):
                    for j in range(n):
                        highest[j] = max(highest[j], raw[r, j])
                leaving[:] = 0
                for r in range(S):
                    for j in range(n):
                        raw[r, j] = np.exp(raw[r, j] - highest[j])
                        leaving[j] += raw[r, j]
                for r in range(S):
                    for j in range(n):
                        raw[r, j] /= leaving[j]
                        old = damped[before, b, i, r, j] if t else np.float32(1)
                        damped[kept, b, i, r, j] = delta * raw[r, j] + (1 - delta) * old
                for j in range(n):
                    for r in range(num_candidates[b, j]):
                        sent[i, r, j] = np.log(damped[kept, b, i, r, j]) if j != i else np.float32(0)
            for i in range(n):
                if num_candidates[b, i]:
                    for r in range(S):
                        for j in range(n):
                            arrived[j, r, i] = sent[i, r, j] if r < num_candidates[b, j] else np.float32(0)
        for i in range(n):
            for s in range(num_candidates[b, i]):
                mu[b, i, s] = psi[b, i, s] + arrived[i, s, :n].sum()


@_compiled
def _propagate_backward(  # type: ignore[no-untyped-def]
    d_mu,
    scale,
    candidates,
    num_candidates,
    softmax,
    damped,
    strongest,
    delta,
    excludes,
    T,
    d_psi,
    d_scores,
) -> None:
    n, S = d_mu.shape[1], d_mu.shape[2]
    d_arrived = np.empty((n, S, n), np.float32)
    d_phi = np.empty((n, S, S, n), np.float32)
    d_damped = np.empty((n, S, n), np.float32)
    d_leaving = np.empty((S, n), np.float32)
    mean = np.empty(n, np.float32)
    for b in range(d_mu.shape[0]):
        n = _length(num_candidates[b])
        for i in range(n):
            for s in range(S):
                gradient = d_mu[b, i, s] if s < num_candidates[b, i] else np.float32(0)
                d_psi[b, i, s] = gradient
                for k in range(n):
                    is_message = k != i and num_candidates[b, k] > 0
                    d_arrived[i, s, k] = gradient if is_message else np.float32(0)
        d_phi[:] = 0
        d_damped[:] = 0
        for t in range(T - 1, -1, -1):
            for i in range(n):
                if num_candidates[b, i] == 0:
                    continue
                for r in range(S):
                    for j in range(n):
                        if r < num_candidates[b, j] and j != i:
                            d_damped[i, r, j] += d_arrived[j, r, i] / damped[t, b, i, r, j]
            d_arrived[:] = 0
            for i in range(n):
                if num_candidates[b, i] == 0:
                    continue
                mean[:] = 0
                for r in range(S):
                    for j in range(n):
                        mean[j] += softmax[t, b, i, r, j] * d_damped[i, r, j]
                d_leaving[:] = 0
                for r in range(S):
                    for j in range(n):
                        gradient = delta * softmax[t, b, i, r, j] * (d_damped[i, r, j] - mean[j])
                        s = strongest[t, b, i, r, j]
                        if r < num_candidates[b, j] and j != i:
                            d_leaving[s, j] += gradient
                            d_phi[i, s, r, j] += gradient
                        d_damped[i, r, j] *= 1 - delta
                for s in range(num_candidates[b, i]):
                    d_total = d_leaving[s, :n].sum()
                    d_psi[b, i, s] += d_total
                    for j in range(n):
                        if j != i and num_candidates[b, j]:
                            d_arrived[i, s, j] = d_total - d_leaving[s, j] if excludes else d_total
        for i in range(n):
            for s in range(num_candidates[b, i]):
                row = candidates[b, i, s]
                for j in range(n):
                    for r in range(num_candidates[b, j]):
                        d_scores[b, row, candidates[b, j, r]] += scale[b] * d_phi[i, s, r, j]
