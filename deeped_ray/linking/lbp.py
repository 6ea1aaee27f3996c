"""Section 5: joint inference by T rounds of damped, synchronous belief propagation, max-product or sum-product.

    psi   Psi_i(e), unary scores                                    [B, n, S]
    phi   Phi(e, e') between candidates e' of i and e of j          [B, i, j, e', e]
    m     normalised log-message from mention i about e of j        [B, i, j, e]

Padding never votes: messages from and to absent mentions, to absent candidates and from a mention to itself stay 0.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deeped_ray.linking.config import Product

_LOWEST = -1e30


def pairwise_scale(is_mention: Bool[Tensor, "B n"], *, counts_itself: bool = False) -> Float[Tensor, " B"]:
    """2 / (n - 1); 2 / n where a mention counts itself."""
    # Differs from the paper: n counts the mentions that have candidates; the others take no part
    num_mentions = is_mention.sum(dim=1)
    return 2.0 / (num_mentions if counts_itself else num_mentions - 1).clamp(min=1)


def pairwise(scores: Float[Tensor, "B n S n S"], scale: Float[Tensor, " B"]) -> Float[Tensor, "B n n S S"]:
    """Phi(e, e') = 2 / (n - 1) x_e' C x_e', from the bilinear scores of all candidates."""
    return scale.to(scores.dtype)[:, None, None, None, None] * scores.permute(0, 1, 3, 2, 4)


def send(
    psi: Float[Tensor, "B n S"],
    phi: Float[Tensor, "B n n S S"],
    messages: Float[Tensor, "B n n S"],
    is_candidate: Bool[Tensor, "B n S"],
    *,
    product: Product = "max",
    excludes_receiver: bool = True,
) -> Float[Tensor, "B n n S"]:
    """m_{i->j}(e) = max over e' of Psi_i(e') + Phi(e, e') + sum over k != j of m_{k->i}(e').

    Sum-product has log sum exp for max. The authors' code does not exclude the receiver j from the sum.
    """
    incoming = messages.sum(dim=1)[:, :, None, :]  # [B, i, j, e']
    if excludes_receiver:
        incoming = incoming - messages.transpose(1, 2)
    senders = (psi[:, :, None, :] + incoming).masked_fill(~is_candidate[:, :, None, :], _LOWEST)
    joint = senders[..., None] + phi
    return joint.amax(dim=3) if product == "max" else joint.logsumexp(dim=3)


def damp(
    raw: Float[Tensor, "B n n S"],
    messages: Float[Tensor, "B n n S"],
    is_candidate: Bool[Tensor, "B n S"],
    *,
    delta: float,
) -> Float[Tensor, "B n n S"]:
    """log[delta softmax(m_{i->j}(e)) + (1 - delta) exp(previous message)], the softmax over j's candidates."""
    normalised = raw.masked_fill(~is_candidate[:, None, :, :], _LOWEST).log_softmax(dim=-1)
    if delta == 1:
        return normalised
    return torch.logaddexp(normalised + math.log(delta), messages + math.log(1 - delta))


def propagate(
    psi: Float[Tensor, "B n S"],
    phi: Float[Tensor, "B n n S S"],
    is_candidate: Bool[Tensor, "B n S"],
    *,
    delta: float,
    T: int,
    product: Product = "max",
    excludes_receiver: bool = True,
) -> Float[Tensor, "B n S"]:
    """mu_i(e) = Psi_i(e) + sum over k != i of m_{k->i}(e) after T rounds; messages start at zero."""
    is_mention = is_candidate.any(dim=-1)
    n = psi.shape[1]
    others = ~torch.eye(n, dtype=torch.bool, device=psi.device)
    is_message = (is_mention[:, :, None] & is_mention[:, None, :] & others)[..., None] & is_candidate[:, None, :, :]
    messages = psi.new_zeros(psi.shape[0], n, n, psi.shape[2])
    for _ in range(T):
        raw = send(psi, phi, messages, is_candidate, product=product, excludes_receiver=excludes_receiver)
        messages = damp(raw, messages, is_candidate, delta=delta).masked_fill(~is_message, 0.0)
    return psi + messages.sum(dim=1)


def marginal(mu: Float[Tensor, "B n S"], is_candidate: Bool[Tensor, "B n S"]) -> Float[Tensor, "B n S"]:
    """exp mu_i(e) / sum over e' in Gamma(m_i) of exp mu_i(e')."""
    return mu.masked_fill(~is_candidate, _LOWEST).softmax(dim=-1) * is_candidate


def log_marginal(mu: Float[Tensor, "B n S"], is_candidate: Bool[Tensor, "B n S"]) -> Float[Tensor, "B n S"]:
    """The logarithm of `marginal`, 0 where there is no candidate."""
    return mu.masked_fill(~is_candidate, _LOWEST).log_softmax(dim=-1).masked_fill(~is_candidate, 0.0)
