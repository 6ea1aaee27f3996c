"""Settings of the model, which training and linking share."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from deeped_ray.types import DeepEdError, require_at_least

ModelKind = Literal["local", "global"]
Product = Literal["max", "sum"]
Variant = Literal["paper", "deep-ed"]
# Where the authors' code departs from their text: each is an option of its own, and the variant sets those not given.
VARIANTS: dict[Variant, dict[str, Any]] = {
    "paper": {
        "belief": "probability",
        "drops_last_word": False,
        "excludes_receiver": True,
        "counts_itself": False,
    },
    "deep-ed": {
        "belief": "log",
        "drops_last_word": True,
        "excludes_receiver": False,
        "counts_itself": True,
    },
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model's shape."""

    variant: Annotated[
        Variant, "whom to follow where text and code of the paper differ; sets the next four options"
    ] = "deep-ed"
    belief: Annotated[
        Literal["probability", "log"] | None, "what f is given of a belief: probability (paper) or logarithm (deep-ed)"
    ] = None
    drops_last_word: Annotated[bool | None, "keep R - 1 context words, not R (deep-ed)"] = None
    excludes_receiver: Annotated[bool | None, "leave a mention's own message out of those sent to it (paper)"] = None
    counts_itself: Annotated[bool | None, "weight pairs of mentions by 2/n (deep-ed), not 2/(n-1)"] = None

    local_kept_words: Annotated[int, "R of the local model: context words that keep an attention weight"] = 50
    global_kept_words: Annotated[int, "R of the global model"] = 25
    damping: Annotated[float, "delta: share of the new message in each round of belief propagation"] = 0.5
    rounds: Annotated[int, "T: rounds of belief propagation; the paper's: 10"] = 5
    product: Annotated[Product, "max-product or sum-product messages"] = "max"
    unary: Annotated[
        Literal["context", "score"], "what a mention itself says of its candidates: Psi, or Psi and prior together"
    ] = "context"
    forms: Annotated[Literal["full", "diagonal"], "A, B, C as full matrices, or as diagonals (paper)"] = "full"
    hidden_layers: Annotated[int, "hidden layers of f: 2 (paper); deep-ed has 1"] = 2
    hidden_units: Annotated[int, "hidden units of each"] = 100
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
