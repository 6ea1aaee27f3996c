"""The fitted model as linking uses it: the equations of `model` for one document, without torch.

What a document gets depends on the document alone: not on the rest of its batch, nor on the number of threads. Every sum
is taken over one document, in one order.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from deeped_ray.knowledge.layers import Layers
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking import kernels, score_kernels
from deeped_ray.linking.config import ModelConfig, ModelKind, Product
from deeped_ray.linking.encoding import EncodedDocument, Floats
from deeped_ray.linking.folded import Folded, Folding, wide

LOWEST = np.float32(-1e30)
Bools = npt.NDArray[np.bool_]
_Layers = tuple[tuple[Floats, ...], tuple[Floats, ...]]
"""Weights, with rows as `wide` makes them, and biases."""


class Scored(NamedTuple):
    """What the model says of a document's candidates, and why. A row holds its values first, then padding."""

    rho: Floats
    """Final score, [n, S]; the lowest number where there is no candidate."""
    psi: Floats
    belief: Floats | None
    beta: Floats
    """Weights of the context words, [n, K]."""
    support: Floats | None
    """How far the answer of j speaks for that of i rather than for its runner-up, [n, n]."""
    explains: bool
    """Whether beta and support are wanted."""


class FittedModel:
    """The weights of a trained model."""

    def __init__(self, kind: ModelKind, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        self.kind, self.config = kind, config
        self._forms = {name: weights[name] for name in _form_names(kind)}
        self._f = _layers(weights, "f", config)
        self._has_g = _has_g(kind, config)
        self._g = _layers(weights, "g", config) if self._has_g else self._f
        self._can_propagate = config.product == "max" and kernels.can_propagate(delta=config.damping, T=config.rounds)
        self._messages = np.float32(config.damping), bool(config.excludes_receiver), config.rounds

    @classmethod
    def load(
        cls, path: Path, kind: ModelKind, config: ModelConfig, *, dimension: int, num_evidence: int = 0
    ) -> "FittedModel":
        try:
            weights = load_file(path)
        except (OSError, SafetensorError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise ArtifactError(f"Cannot read {path}: {reason}. Run jobs/train_linker.py again.") from error
        found = {name: weight.shape for name, weight in weights.items()}
        expected = weight_shapes(kind, config, dimension=dimension, num_evidence=num_evidence)
        if found != expected:
            wrong = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise ArtifactError(
                f"{path} does not fit a {kind} model for {dimension}-dimensional vectors: {wrong} is {found.get(wrong)},"
                f" not {expected.get(wrong)}. Run jobs/train_linker.py again."
            )
        return cls(kind, config, weights)

    def fold(self, entities: Layers | Floats, words: Floats) -> Folding:
        """All vectors, with the products of the words with A and B, and of the entities with C."""
        entities = entities if isinstance(entities, Layers) else Layers(entities)
        times_entities = Folded(entities, [self._forms["C"]]) if "C" in self._forms else None
        return Folding(entities, Folded(Layers(words), [self._forms[form] for form in "AB"]), times_entities)

    def score(self, document: EncodedDocument, folding: Folding, *, explain: bool = True) -> Scored:
        vectors = folding.entities.own, folding.entities.extra
        words, is_global = folding.times_words.take(document.words), self.kind == "global"
        pairs = words if folding.times_entities is None else folding.times_entities.take(document.entities)
        arrays = (document.candidates, document.num_candidates, document.context, document.num_words)
        given = (*arrays, document.prior, document.evidence)
        scales = np.float32(self.config.psi_scale), self._pairwise_scale(document)
        R, ends = self.config.kept_words(self.kind), (self.config.belief == "log", explain)
        before = (vectors, document.entities, words, pairs, given, R, scales, is_global, self._has_g)
        if is_global and not self._can_propagate:
            psi, beta, phi, unary = score_kernels.before_messages(*before, self._g)
            mu = _propagate_plainly(unary, document, phi, self.config)
            after = score_kernels.after_messages(mu, psi, given, phi, scales, is_global, *ends, self._f)
        else:
            psi, beta, *after = score_kernels.score(*before, *ends, self._messages, self._g, self._f)
        belief, rho, support = after
        return (
            Scored(rho, psi, belief, beta, support, explain)
            if is_global
            else Scored(rho, psi, None, beta, None, explain)
        )

    def _pairwise_scale(self, document: EncodedDocument) -> np.float32:
        """The factor of Phi: 2 / (n - 1), or 2 / n, of the mentions that have candidates."""
        num_mentions = int(np.count_nonzero(document.num_candidates)) - (not self.config.counts_itself)
        return np.float32(self.config.psi_scale * 2 / max(1, num_mentions))


# -- weights


def weight_shapes(
    kind: ModelKind, config: ModelConfig, *, dimension: int, num_evidence: int = 0
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every weight that training saves."""
    form = (dimension,) if config.forms == "diagonal" else (dimension, dimension)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_form_names(kind), form)
    widths = [2 + num_evidence, *[config.hidden_units] * config.hidden_layers, 1]
    for function in "fg" if _has_g(kind, config) else "f":
        for place, (width, next_width) in enumerate(itertools.pairwise(widths)):
            # every other module of `f` is a ReLU
            shapes[f"{function}.{2 * place}.weight"] = (next_width, width)
            shapes[f"{function}.{2 * place}.bias"] = (next_width,)
    return shapes


def _form_names(kind: ModelKind) -> str:
    return "AB" if kind == "local" else "ABC"


def _has_g(kind: ModelKind, config: ModelConfig) -> bool:
    return kind == "global" and config.unary == "score"


def _layers(weights: Mapping[str, Floats], function: str, config: ModelConfig) -> _Layers:
    names = [f"{function}.{2 * place}" for place in range(config.hidden_layers + 1)]
    return tuple(wide(weights[f"{name}.weight"]) for name in names), tuple(weights[f"{name}.bias"] for name in names)


# -- equations


def log_softmax(values: Floats, is_candidate: Bools) -> Floats:
    """Over the candidates of each mention; 0 where there is no candidate."""
    masked = np.where(is_candidate, values, LOWEST)
    shifted = masked - masked.max(axis=-1, keepdims=True)
    total = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.where(is_candidate, shifted - total, np.float32(0))


def _propagate_plainly(unary: Floats, document: EncodedDocument, pairs: Floats, config: ModelConfig) -> Floats:
    """As `lbp` says it, for settings that the kernel does not know."""
    n, S = unary.shape
    phi = pairs[document.candidates[:, None, :, None], document.candidates[None, :, None, :]]
    is_candidate = np.arange(S) < document.num_candidates[:, None]
    has_candidates = is_candidate.any(axis=1, keepdims=True)
    is_message = (has_candidates & has_candidates.T & ~np.eye(n, dtype=bool))[:, :, None] & is_candidate[None]
    messages: Floats = np.zeros((n, *unary.shape), np.float32)
    for _ in range(config.rounds):
        incoming = messages.sum(axis=0)[:, None, :]
        if config.excludes_receiver:
            incoming = incoming - messages.transpose(1, 0, 2)
        senders = np.where(is_candidate[:, None, :], unary[:, None, :] + incoming, LOWEST)
        raw = _reduce(senders[..., None] + phi, config.product)
        new = log_softmax(raw, np.broadcast_to(is_candidate[None], raw.shape))
        if config.damping < 1:
            delta = np.float32(config.damping)
            new = np.logaddexp(new + np.log(delta), messages + np.log1p(-delta))
        messages = np.where(is_message, new, np.float32(0))
    mu: Floats = unary + messages.sum(axis=0)
    return mu


def _reduce(joint: Floats, product: Product) -> Floats:
    """Over the sender's candidates."""
    highest: Floats = joint.max(axis=2)
    if product == "sum":
        highest += np.log(np.exp(joint - highest[:, :, None]).sum(axis=2))
    return highest
