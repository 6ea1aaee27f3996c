"""The trainable model: local scores (section 4), joint beliefs (section 5), and f, which adds the prior to either."""

import itertools
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from deeped_ray.linking import attention, kernels, lbp
from deeped_ray.linking.batching import Batch
from deeped_ray.types import DeepEdError, require_at_least

_LOWEST = -1e30
ModelKind = Literal["local", "global"]
Variant = Literal["paper", "deep-ed"]
# Where the authors' code departs from their text: each is an option of its own, and the variant sets those not given.
VARIANTS: dict[Variant, dict[str, Any]] = {
    "paper": {
        "belief": "probability",
        "hidden_layers": 2,
        "drops_last_word": False,
        "excludes_receiver": True,
        "counts_itself": False,
    },
    "deep-ed": {
        "belief": "log",
        "hidden_layers": 1,
        "drops_last_word": True,
        "excludes_receiver": False,
        "counts_itself": True,
    },
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model's shape."""

    variant: Annotated[
        Variant, "whom to follow where text and code of the paper differ; sets the next five options"
    ] = "deep-ed"
    belief: Annotated[
        Literal["probability", "log"] | None, "what f is given of a belief: probability (paper) or logarithm (deep-ed)"
    ] = None
    hidden_layers: Annotated[int | None, "hidden layers of f: 2 (paper) or 1 (deep-ed)"] = None
    drops_last_word: Annotated[bool | None, "keep R - 1 context words, not R (deep-ed)"] = None
    excludes_receiver: Annotated[bool | None, "leave a mention's own message out of those sent to it (paper)"] = None
    counts_itself: Annotated[bool | None, "weight pairs of mentions by 2/n (deep-ed), not 2/(n-1)"] = None

    local_kept_words: Annotated[int, "R of the local model: context words that keep an attention weight"] = 50
    global_kept_words: Annotated[int, "R of the global model"] = 25
    damping: Annotated[float, "delta: share of the new message in each round of belief propagation"] = 0.5
    rounds: Annotated[int, "T: rounds of belief propagation; the paper's: 10"] = 5
    product: Annotated[lbp.Product, "max-product or sum-product messages"] = "max"
    unary: Annotated[
        Literal["context", "score"], "what a mention itself says of its candidates: Psi, or Psi and prior together"
    ] = "context"
    forms: Annotated[Literal["full", "diagonal"], "A, B, C as full matrices, or as diagonals (paper)"] = "full"
    hidden_units: Annotated[int, "hidden units of f"] = 100
    psi_scale: Annotated[float, "factor on Psi and Phi at the start; vectors of unit length make them small"] = 3.0
    max_norm: Annotated[float, "norm to which each weight tensor of f is cut back after a step; 0: never"] = 0.0

    def __post_init__(self) -> None:
        for name, value in VARIANTS[self.variant].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if not 0 < self.damping <= 1:
            raise DeepEdError(f"`damping` must be above 0 and at most 1, not {self.damping}.")
        if self.psi_scale <= 0:
            raise DeepEdError(f"`psi_scale` must be above 0, not {self.psi_scale}.")
        require_at_least(1 + bool(self.drops_last_word), self, "local_kept_words", "global_kept_words")
        require_at_least(1, self, "rounds", "hidden_units", "hidden_layers")
        require_at_least(0, self, "max_norm")

    def kept_words(self, kind: ModelKind) -> int:
        """R, as the variant counts it."""
        return (self.local_kept_words if kind == "local" else self.global_kept_words) - bool(self.drops_last_word)


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

    def __init__(self, kind: ModelKind, config: ModelConfig, *, dimension: int) -> None:
        super().__init__()
        self.kind: ModelKind = kind
        self.config = config
        identity = torch.ones(dimension) if config.forms == "diagonal" else torch.eye(dimension)
        self.A = nn.Parameter(identity.clone())
        self.B = nn.Parameter(identity.clone())
        if kind == "global":
            self.C = nn.Parameter(identity.clone())
        self.f = _f(config)
        if kind == "global" and config.unary == "score":
            self.g = _f(config)

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
        if kernels.can_attend(batch):
            return kernels.attend(self.A, self.B, batch, R=R)
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
        if config.product == "max" and kernels.can_propagate(batch, delta=delta, T=T):
            return kernels.propagate(unary, self.C, scale, batch, delta=delta, T=T, excludes_receiver=excludes)
        entities = batch.padded.entity_vectors
        phi = lbp.pairwise(batch.padded.gather_pairs(attention.bilinear(entities, self.C, entities)), scale)
        return lbp.propagate(
            unary, phi, batch.is_candidate, delta=delta, T=T, product=config.product, excludes_receiver=excludes
        )

    def mutual_support(self, rho: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n n"]:
        """Phi(e_i, e_j) - Phi(r_i, e_j): how far the answer of j speaks for that of i rather than for its runner-up r_i."""
        best = rho.argmax(dim=-1, keepdim=True)
        others = batch.is_candidate.scatter(-1, best, False)
        second = rho.masked_fill(~others, _LOWEST).argmax(dim=-1, keepdim=True)
        answers, rivals = (self._vectors_of(place, batch) for place in (best, second))
        answers = answers * batch.is_candidate.any(dim=-1, keepdim=True)
        gain = (answers - rivals) * others.any(dim=-1, keepdim=True)
        return self._pairwise_scale(batch)[:, None, None] * attention.bilinear(gain, self.C, answers)

    def _vectors_of(self, place: Int[Tensor, "B n 1"], batch: Batch) -> Float[Tensor, "B n d"]:
        """Of the candidates at a place of every mention."""
        return batch.entity_vectors[batch.candidates.gather(-1, place).squeeze(-1)]

    def _pairwise_scale(self, batch: Batch) -> Float[Tensor, " B"]:
        """The factor of Phi."""
        is_mention = batch.is_candidate.any(dim=-1)
        return self.config.psi_scale * lbp.pairwise_scale(is_mention, counts_itself=bool(self.config.counts_itself))

    def _combine(self, f: nn.Module, evidence: Float[Tensor, "B n S"], batch: Batch) -> Float[Tensor, "B n S"]:
        """f(evidence, log p(e|m))."""
        rho: Tensor = f(torch.stack([evidence, batch.log_prior], dim=-1)).squeeze(-1)
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


def _f(config: ModelConfig) -> nn.Sequential:
    """rho from two numbers: evidence and log prior."""
    assert config.hidden_layers is not None
    widths = [2, *[config.hidden_units] * config.hidden_layers]
    hidden = [layer for sizes in itertools.pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(config.hidden_units, 1))


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
