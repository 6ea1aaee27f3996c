"""The trainable model: local scores (section 4), joint beliefs (section 5), and f, which adds the prior to either."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deeped_ray.linking import attention, lbp
from deeped_ray.linking.batching import Batch
from deeped_ray.types import DeepEdError

_LOWEST = -1e30
ModelKind = Literal["local", "global"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model's shape; the paper's values."""

    local_kept_words: Annotated[int, "R of the local model: context words that keep an attention weight"] = 50
    global_kept_words: Annotated[int, "R of the global model"] = 25
    damping: Annotated[float, "delta: share of the new message in each round of belief propagation"] = 0.5
    rounds: Annotated[int, "T: rounds of belief propagation"] = 10
    hidden_units: Annotated[int, "hidden units of f"] = 100
    belief: Annotated[
        Literal["probability", "log"],
        "what f is given of a belief: the paper's probability, or the authors' code's logarithm",
    ] = "probability"
    psi_scale: Annotated[float, "factor on Psi before the local model's f; vectors of unit length make it small"] = 1.0
    max_norm: Annotated[float, "norm to which each weight tensor of f is cut back after a step; 0: never"] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.damping <= 1:
            raise DeepEdError(f"--damping must lie in (0, 1], not {self.damping}.")
        if min(self.local_kept_words, self.global_kept_words, self.rounds, self.hidden_units) < 1:
            raise DeepEdError("Kept words, rounds and hidden units must be at least 1.")
        if self.psi_scale <= 0 or self.max_norm < 0:
            raise DeepEdError("--psi-scale must be positive and --max-norm must not be negative.")


class Scores(NamedTuple):
    """What the model says of every candidate, and why."""

    rho: Float[Tensor, "B n S"]
    """Final score; the lowest number where there is no candidate."""
    psi: Float[Tensor, "B n S"]
    belief: Float[Tensor, "B n S"] | None
    beta: Float[Tensor, "B n K"]


class LinkerModel(nn.Module):
    """A, B, C start at one, so that an untrained model compares plain inner products."""

    def __init__(self, kind: ModelKind, config: ModelConfig, *, dimension: int) -> None:
        super().__init__()
        self.kind: ModelKind = kind
        self.config = config
        self.A = nn.Parameter(torch.ones(dimension))
        self.B = nn.Parameter(torch.ones(dimension))
        if kind == "global":
            self.C = nn.Parameter(torch.ones(dimension))
        # Differs from the paper's text ("two layers of 100 units"): one hidden layer, as in the authors' code.
        self.f = nn.Sequential(nn.Linear(2, config.hidden_units), nn.ReLU(), nn.Linear(config.hidden_units, 1))

    def forward(self, batch: Batch) -> Scores:
        psi, beta = self._local(batch)
        if self.kind == "local":
            return Scores(self._combine(self.config.psi_scale * psi, batch), psi, None, beta)
        mu = self._joint(psi, batch)
        belief = lbp.marginal(mu, batch.is_candidate)
        # Differs from the paper with --belief log: a logarithm keeps apart what is all near zero
        evidence = belief if self.config.belief == "probability" else lbp.log_marginal(mu, batch.is_candidate)
        return Scores(self._combine(evidence, batch), psi, belief, beta)

    def _local(self, batch: Batch) -> tuple[Float[Tensor, "B n S"], Float[Tensor, "B n K"]]:
        entities, words = batch.entity_vectors, batch.word_vectors
        R = self.config.local_kept_words if self.kind == "local" else self.config.global_kept_words
        u = attention.support(batch.gather_context(attention.bilinear(entities, self.A, words)), batch.is_candidate)
        beta = attention.attention(u, attention.keep_best_words(u, batch.is_word, R=R))
        return attention.context_score(batch.gather_context(attention.bilinear(entities, self.B, words)), beta), beta

    def _joint(self, psi: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n S"]:
        scores = batch.gather_pairs(attention.bilinear(batch.entity_vectors, self.C, batch.entity_vectors))
        phi = lbp.pairwise(scores, batch.is_candidate.any(dim=-1))
        return lbp.propagate(psi, phi, batch.is_candidate, delta=self.config.damping, T=self.config.rounds)

    def _combine(self, evidence: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n S"]:
        """rho = f(evidence, log p(e|m))."""
        rho: Tensor = self.f(torch.stack([evidence, batch.log_prior], dim=-1)).squeeze(-1)
        return rho.masked_fill(~batch.is_candidate, _LOWEST)

    @torch.no_grad()
    def project_(self) -> None:
        """Rescale each weight tensor of f to at most `max_norm`; done after every optimiser step."""
        if not self.config.max_norm:
            return
        # Differs from the paper, which bounds the sum of squares of all weights: tensor by tensor, as in the authors' code
        for weight in self.f.parameters():
            weight.mul_((self.config.max_norm / weight.norm().clamp(min=1e-12)).clamp(max=1.0))


def margin_loss(rho: Float[Tensor, "B n S"], batch: Batch, *, gamma: float) -> Float[Tensor, ""]:
    """Sum over mentions and wrong candidates of [gamma - rho(e*) + rho(e)]_+; mentions without their gold entity add 0."""
    has_gold = batch.gold >= 0
    gold = rho.gather(-1, batch.gold.clamp(min=0)[..., None])  # [B, n, 1]
    is_wrong = batch.is_candidate & (torch.arange(rho.shape[-1], device=rho.device) != batch.gold[..., None])
    violations = (gamma - gold + rho).relu()
    return violations.masked_fill(~(is_wrong & has_gold[..., None]), 0.0).sum()


def cross_entropy(rho: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, ""]:
    """Sum over mentions of -log softmax(rho)(e*); mentions without their gold entity add 0."""
    log_probability = rho.log_softmax(dim=-1).gather(-1, batch.gold.clamp(min=0)[..., None]).squeeze(-1)
    return -log_probability.masked_fill(batch.gold < 0, 0.0).sum()
