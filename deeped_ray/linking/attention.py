"""Section 4: local scores from attention over context words, one function per equation.

    B documents, n mentions, S candidates, K context words, R kept words
    A, B   bilinear forms between entity and word vectors                    [d], their diagonals, or [d, d]
    u      support of a word: its strongest tie to any candidate             [B, n, K]
    beta   attention weights, zero outside the R best supported words        [B, n, K]
    psi    Psi(e, c), the context's score for a candidate                    [B, n, S]

All vectors enter through bilinear scores: the model computes x_e' A x_w once for a document's distinct entities and
words and gathers the numbers here, instead of gathering S + K vectors per mention.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_LOWEST = -1e30  # stands for minus infinity where a gradient must pass


def bilinear(
    x: Float[Tensor, "B E d"], form: Float[Tensor, " d"] | Float[Tensor, "d d"], y: Float[Tensor, "B W d"]
) -> Float[Tensor, "B E W"]:
    """x' A y for all pairs of a document's entities and words (or entities and entities)."""
    return (x * form if form.dim() == 1 else x @ form) @ y.transpose(1, 2)


def support(scores: Float[Tensor, "B n S K"], is_candidate: Bool[Tensor, "B n S"]) -> Float[Tensor, "B n K"]:
    """u(w) = max over e in Gamma(m) of x_e' A x_w."""
    return scores.masked_fill(~is_candidate[..., None], _LOWEST).amax(dim=2)


def keep_best_words(u: Float[Tensor, "B n K"], is_word: Bool[Tensor, "B n K"], *, R: int) -> Bool[Tensor, "B n K"]:
    """The reduced context: the R words with the highest u(w), or all if there are fewer."""
    ranked = u.masked_fill(~is_word, _LOWEST)
    best = ranked.topk(min(R, u.shape[-1]), dim=-1).indices
    return torch.zeros_like(is_word).scatter(-1, best, value=True) & is_word


def attention(u: Float[Tensor, "B n K"], kept: Bool[Tensor, "B n K"]) -> Float[Tensor, "B n K"]:
    """beta(w) = exp u(w) / sum over kept v of exp u(v); all zero for an empty context."""
    weights = u.masked_fill(~kept, _LOWEST).softmax(dim=-1)
    return weights * kept


def context_score(scores: Float[Tensor, "B n S K"], beta: Float[Tensor, "B n K"]) -> Float[Tensor, "B n S"]:
    """Psi(e, c) = sum over kept w of beta(w) x_e' B x_w."""
    return torch.einsum("bnsk,bnk->bns", scores, beta)
