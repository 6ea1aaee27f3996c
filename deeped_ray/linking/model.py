"""The trainable model: local scores (section 4), joint beliefs (section 5), and f, which adds the prior to either."""

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deeped_ray.linking import attention, differentiable, lbp
from deeped_ray.linking.batching import Batch
from deeped_ray.linking.config import ModelConfig, ModelKind

_LOWEST = -1e30


class Scores(NamedTuple):
    """What the model says of every candidate, and why."""

    rho: Float[Tensor, "B n S"]
    """Final score; the lowest number where there is no candidate."""
    psi: Float[Tensor, "B n S"]
    belief: Float[Tensor, "B n S"] | None
    beta: Float[Tensor, "B n K"]
    unary: Float[Tensor, "B n S"] | None = None
    """With the prior in the unary factor: the score before mentions speak to each other."""


class LinkerModel(nn.Module):
    """A, B, C start as identities, so that an untrained model compares plain inner products."""

    def __init__(self, kind: ModelKind, config: ModelConfig, *, dimension: int, num_evidence: int = 0) -> None:
        """`num_evidence` is what f is given beside belief and prior."""
        super().__init__()
        self.kind: ModelKind = kind
        self.config = config
        identity = torch.ones(dimension) if config.forms == "diagonal" else torch.eye(dimension)
        self.A = nn.Parameter(identity.clone())
        self.B = nn.Parameter(identity.clone())
        if kind == "global":
            self.C = nn.Parameter(identity.clone())
        self.f = _f(config, num_evidence)
        if kind == "global" and config.unary == "score":
            self.g = _f(config, num_evidence)

    def forward(self, batch: Batch) -> Scores:
        psi, beta = self._attend(batch)
        scaled = self.config.psi_scale * psi
        if self.kind == "local":
            return Scores(self._combine(self.f, scaled, batch), psi, None, beta)
        unary = self._combine(self.g, scaled, batch) if self.config.unary == "score" else None
        mu = self._propagate(scaled if unary is None else unary, batch)
        belief = lbp.marginal(mu, batch.is_candidate)
        evidence = belief if self.config.belief == "probability" else lbp.log_marginal(mu, batch.is_candidate)
        return Scores(self._combine(self.f, evidence, batch), psi, belief, beta, unary)

    def _attend(self, batch: Batch) -> tuple[Float[Tensor, "B n S"], Float[Tensor, "B n K"]]:
        """Psi and beta (section 4)."""
        R = self.config.kept_words(self.kind)
        if differentiable.can_attend(batch):
            return differentiable.attend(self.A, self.B, batch, R=R)
        padded = batch.padded
        a_scores = attention.bilinear(padded.entity_vectors, self.A, padded.word_vectors)
        b_scores = attention.bilinear(padded.entity_vectors, self.B, padded.word_vectors)
        u = attention.support(padded.gather_context(a_scores), batch.is_candidate)
        beta = attention.attention(u, attention.keep_best_words(u, padded.is_word, R=R))
        return attention.context_score(padded.gather_context(b_scores), beta), beta

    def _propagate(self, unary: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n S"]:
        """mu after T rounds (section 5)."""
        config = self.config
        scale = self._pairwise_scale(batch)
        delta, T, excludes = config.damping, config.rounds, bool(config.excludes_receiver)
        if config.product == "max" and differentiable.can_propagate(batch, delta=delta, T=T):
            return differentiable.propagate(unary, self.C, scale, batch, delta=delta, T=T, excludes_receiver=excludes)
        entities = batch.padded.entity_vectors
        phi = lbp.pairwise(batch.padded.gather_pairs(attention.bilinear(entities, self.C, entities)), scale)
        return lbp.propagate(
            unary, phi, batch.is_candidate, delta=delta, T=T, product=config.product, excludes_receiver=excludes
        )

    def _pairwise_scale(self, batch: Batch) -> Float[Tensor, " B"]:
        """The factor of Phi."""
        is_mention = batch.is_candidate.any(dim=-1)
        return self.config.psi_scale * lbp.pairwise_scale(is_mention, counts_itself=bool(self.config.counts_itself))

    def _combine(self, f: nn.Module, evidence: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n S"]:
        """f(evidence, log p(e|m), further evidence)."""
        inputs = torch.stack([evidence, batch.log_prior], dim=-1)
        rho: Tensor = f(torch.cat([inputs, batch.evidence], dim=-1)).squeeze(-1)
        return rho.masked_fill(~batch.is_candidate, _LOWEST)

    @property
    def matrices(self) -> list[nn.Parameter]:
        """Those of A, B, C that are full: many weights, which learn more slowly."""
        return [parameter for name, parameter in self.named_parameters() if name in "ABC" and parameter.dim() == 2]

    @torch.no_grad()
    def project_(self) -> None:
        """Rescale each weight tensor of f to at most `max_norm`; done after every optimiser step."""
        if not self.config.max_norm:
            return
        # Differs from the paper, which bounds the sum of squares of all weights: tensor by tensor, as in the authors' code
        for weight in self.f.parameters():
            weight.mul_((self.config.max_norm / weight.norm().clamp(min=1e-12)).clamp(max=1.0))


def _f(config: ModelConfig, num_evidence: int) -> nn.Sequential:
    """rho from evidence, log prior and what else is known of a candidate."""
    widths = [2 + num_evidence, *[config.hidden_units] * config.hidden_layers]
    hidden = [layer for sizes in itertools.pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(config.hidden_units, 1))


def margin_loss(rho: Float[Tensor, "B n S"], batch: Batch, *, gamma: float) -> Float[Tensor, ""]:
    """Weighted sum over mentions and wrong candidates of [gamma - rho(e*) + rho(e)]_+; mentions without their gold entity
    add 0."""
    has_gold = batch.gold >= 0
    gold = rho.gather(-1, batch.gold.clamp(min=0)[..., None])  # [B, n, 1]
    is_wrong = batch.is_candidate & (torch.arange(rho.shape[-1], device=rho.device) != batch.gold[..., None])
    violations = (gamma - gold + rho).relu()
    return (violations.masked_fill(~(is_wrong & has_gold[..., None]), 0.0).sum(dim=(1, 2)) * batch.weight).sum()


def cross_entropy(rho: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, ""]:
    """Weighted sum over mentions of -log softmax(rho)(e*); mentions without their gold entity add 0."""
    log_probability = rho.log_softmax(dim=-1).gather(-1, batch.gold.clamp(min=0)[..., None]).squeeze(-1)
    return -(log_probability.masked_fill(batch.gold < 0, 0.0).sum(dim=1) * batch.weight).sum()
