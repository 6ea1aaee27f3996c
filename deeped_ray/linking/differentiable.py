"""The kernels with their gradients, for training: torch calls them document by document."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from deeped_ray.linking import kernels
from deeped_ray.linking.batching import Batch


def attend(A: Tensor, B: Tensor, batch: Batch, *, R: int) -> tuple[Float[Tensor, "B n S"], Float[Tensor, "B n K"]]:
    """Psi and beta."""
    return _Attend.apply(A, B, batch, R)  # type: ignore[no-any-return, no-untyped-call]


def propagate(
    unary: Float[Tensor, "B n S"],
    C: Tensor,
    scale: Float[Tensor, " B"],
    batch: Batch,
    *,
    delta: float,
    T: int,
    excludes_receiver: bool,
) -> Float[Tensor, "B n S"]:
    """mu after T rounds of damped max-product messages; Phi is `scale` times the bilinear scores of C."""
    return _Propagate.apply(unary, C, scale, batch, delta, T, excludes_receiver)  # type: ignore[no-any-return, no-untyped-call]


def can_attend(batch: Batch) -> bool:
    return batch.word_vectors.device.type == "cpu" and batch.word_vectors.dtype == torch.float32


def can_propagate(batch: Batch, *, delta: float, T: int) -> bool:
    return can_attend(batch) and kernels.can_propagate(delta=delta, T=T)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor, batch: Batch, R: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(A, B)
        ctx.documents = []
        psi = torch.zeros(batch.is_candidate.shape)
        beta = torch.zeros(*batch.gold.shape, max(document.context.shape[1] for document in batch.documents))
        for b, (document, entities, words) in enumerate(batch.one_by_one()):
            E = len(entities)
            scores = torch.cat([_times(entities, A), _times(entities, B)]) @ words.T
            places = document.candidates, document.num_candidates, document.context, document.num_words
            strongest = np.zeros(document.context.shape, np.int32)
            kernels.attend(
                scores[:E].numpy(), scores[E:].numpy(), *places, R, psi[b].numpy(), beta[b].numpy(), strongest
            )
            ctx.documents.append((entities, words, scores[E:].numpy(), *places, beta[b].numpy(), strongest))
        ctx.mark_non_differentiable(beta)
        return psi, beta

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        A, B = ctx.saved_tensors
        d_A, d_B = torch.zeros_like(A), torch.zeros_like(B)
        for d_psi, (entities, words, b_scores, *rest) in zip(gradients[0].contiguous(), ctx.documents, strict=True):
            E = len(entities)
            d_scores = torch.zeros(2 * E, len(words))
            kernels.attend_backward(b_scores, *rest, d_psi.numpy(), d_scores[:E].numpy(), d_scores[E:].numpy())
            d_left = d_scores @ words
            d_A += _times_backward(entities, d_left[:E], A)
            d_B += _times_backward(entities, d_left[E:], B)
        return d_A, d_B, None, None


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unary: Tensor, C: Tensor, scale: Tensor, batch: Batch, delta: float, T: int, excludes_receiver: bool
    ) -> Tensor:
        ctx.save_for_backward(C)
        ctx.documents, ctx.settings = [], (np.float32(delta), excludes_receiver, T)
        keep = any(ctx.needs_input_grad)
        mu = torch.zeros(unary.shape)
        for b, (document, entities, _) in enumerate(batch.one_by_one()):
            # mentions after the last that has candidates take no part
            n = int(np.max(np.flatnonzero(document.num_candidates), initial=-1)) + 1
            scores = _times(scale[b] * entities, C) @ entities.T
            shape = (T if keep else 1, n, kernels.width_of(n, unary.shape[2]))
            messages = np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape, np.int8)
            places = document.candidates[:n], document.num_candidates[:n]
            kernels.propagate(
                unary[b, :n].detach().numpy(), scores.numpy(), *places, *ctx.settings, keep, *messages, mu[b].numpy()
            )
            ctx.documents.append((entities, scale[b], *places, *messages))
        return mu

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        (C,) = ctx.saved_tensors
        d_unary, d_C = torch.zeros_like(gradients[0]), torch.zeros_like(C)
        for b, (entities, scale, *rest) in enumerate(ctx.documents):
            d_scores = torch.zeros(len(entities), len(entities))
            kernels.propagate_backward(
                gradients[0][b].contiguous().numpy(), *rest, *ctx.settings, d_unary[b].numpy(), d_scores.numpy()
            )
            d_C += _times_backward(entities, scale * (d_scores @ entities), C)
        return d_unary, d_C, None, None, None, None, None


def _times(vectors: Tensor, form: Tensor) -> Tensor:
    """x' A for every vector x; the form is given in full or by its diagonal."""
    return vectors * form if form.dim() == 1 else vectors @ form


def _times_backward(vectors: Tensor, gradient: Tensor, form: Tensor) -> Tensor:
    return (vectors * gradient).sum(dim=0) if form.dim() == 1 else vectors.T @ gradient
