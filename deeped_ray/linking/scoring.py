"""The fitted model as linking uses it: the equations of `model` for one document, without torch.

What a document gets depends on the document alone: not on the rest of its batch, nor on the number of threads. Every sum
is taken over one document, in one order.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from deeped_ray.knowledge.layers import Layers
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking import score_kernels as kernels
from deeped_ray.linking.config import ModelConfig, ModelKind, Product
from deeped_ray.linking.encoding import EncodedDocument, EncodedGroup, Floats
from deeped_ray.linking.folded import Folded, Folding, wide
from deeped_ray.linking.kernels import can_propagate
from deeped_ray.linking.layout_kernels import CELLS, CONTEXTS, PAIRS, window_of

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


class AllScored(NamedTuple):
    """The same for all windows of a group, each array flat, one window after the other."""

    rho: Floats
    psi: Floats
    belief: Floats
    """Empty for a local model."""
    beta: Floats
    support: Floats
    """Empty for a local model, or if nothing is explained."""
    explains: bool

    def window(self, group: EncodedGroup, number: int) -> Scored:
        (m, k, c, _, _, p), (m_end, k_end, c_end, _, _, p_end) = group.layout[number : number + 2].tolist()
        n, cells = m_end - m, slice(c, c_end)
        return Scored(
            self.rho[cells].reshape(n, -1),
            self.psi[cells].reshape(n, -1),
            self.belief[cells].reshape(n, -1) if len(self.belief) else None,
            self.beta[k:k_end].reshape(n, -1),
            self.support[p:p_end].reshape(n, n) if len(self.support) else None,
            self.explains,
        )


class FittedModel:
    """The weights of a trained model."""

    def __init__(self, kind: ModelKind, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        self.kind, self.config = kind, config
        self._forms = {name: weights[name] for name in _form_names(kind)}
        self._f = _layers(weights, "f", config)
        self._has_g = _has_g(kind, config)
        self._g = _layers(weights, "g", config) if self._has_g else self._f
        self._can_propagate = config.product == "max" and can_propagate(delta=config.damping, T=config.rounds)
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
        group = EncodedGroup.of([document])
        return self.score_all(group, folding, explain=explain).window(group, 0)

    def score_all(self, group: EncodedGroup, folding: Folding, *, explain: bool = True) -> AllScored:
        """Every window for itself."""
        words = folding.times_words.take(group.words)
        pairs = words if folding.times_entities is None else folding.times_entities.take(group.entities)
        settings, ends = (
            (self.config.kept_words(self.kind), float(self.config.psi_scale)),
            (
                self.config.belief == "log",
                explain,
            ),
        )
        vectors, counts_itself = (folding.entities.own, folding.entities.extra), bool(self.config.counts_itself)
        given, is_global = arrays_of(group), self.kind == "global"
        rest = (*settings, counts_itself, is_global, self._has_g, *ends)
        if is_global and not self._can_propagate:
            return self._score_plainly(group, (vectors, given, words, pairs), rest)
        found = kernels.score_all(vectors, given, words, pairs, *rest, self._messages, self._g, self._f)
        return AllScored._make((*found, explain))

    def _score_plainly(self, group: EncodedGroup, given: tuple[Any, ...], rest: tuple[Any, ...]) -> AllScored:
        """Window by window, with messages as `lbp` says them."""
        (vectors, arrays, words, pairs), (R, scale, counts_itself, is_global, has_g, uses_log, explain) = given, rest
        found = kernels.empty_scores(arrays, is_global, explain)
        for w in range(len(group)):
            document, own = group.window(w), window_of(arrays, w)
            scales = np.float32(scale), kernels.pairwise_scale(scale, document.num_candidates, counts_itself)
            slots = [
                (table, found[slice(*group.layout[w : w + 2, at])]) for (table, found), at in ((words, 3), (pairs, 4))
            ]
            before = (vectors, document.entities, *slots, own, R, scales, is_global, has_g, self._g)
            psi, beta, phi, unary = kernels.before_messages(*before)
            mu = _propagate_plainly(unary, document, phi, self.config)
            belief, rho, support = kernels.after_messages(
                mu, psi, own, phi, scales, is_global, uses_log, explain, self._f
            )
            places = group.layout[w, [CELLS, CELLS, CELLS, CONTEXTS, PAIRS]].tolist()
            for values, target, at in zip((rho, psi, belief, beta, support), found, places, strict=True):
                kernels.put(values, target, at)
        return AllScored._make((*found, explain))


def arrays_of(group: EncodedGroup) -> tuple[Any, ...]:
    """What the kernels are given of a group."""
    columns = group.layout, group.widths, group.entities, group.context, group.num_words
    return *columns, group.candidates, group.num_candidates, group.prior, group.evidence


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
