"""How sure the linker may be: the probability of every candidate, and of none of them.

    P(none) = sigmoid(h(x))
    P(e)    = (1 - P(none)) softmax(t(x) rho)(e)

rho are the model's scores. x says what is known about the mention as a whole: how far ahead its best candidate is, what
speaks for it, how the mention is written, and how well the rest of the document is known. h and t are the two outputs of
small networks (`training.calibration`). The model's scores say which
candidate is best; only h and t say how good that is, so the order of the candidates stays.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking.encoding import EncodedDocument, Floats, Ints, log_prior
from deeped_ray.linking.retrieval import CONTEXT_FIT, COUNT, DOCUMENT_FIT, LINKS
from deeped_ray.linking.scoring import Bools, Scored, dots, log_softmax

LIMIT = 5.0
"""Standardised features are cut off here: far from what it was fitted to, a network says anything."""
_OF_DOCUMENT = np.array([CONTEXT_FIT, DOCUMENT_FIT, LINKS, COUNT]) - 1
"""Evidence of the other mentions' best candidates that tells how well a document is known; f's evidence lacks the prior."""
_LEAST = 1e-6


class Judged(NamedTuple):
    """What is asked about: the candidates of all mentions of a document. A row holds its values first, then padding."""

    surfaces: Sequence[str]
    num_candidates: Ints
    rho: Floats
    """[n, S], the model's scores."""
    prior: Floats
    psi: Floats | None = None
    belief: Floats | None = None
    evidence: Floats | None = None
    """[n, S, F]: what f is given, or, for the prior alone, the logarithm of the counts behind it."""

    @classmethod
    def by_model(cls, surfaces: Sequence[str], document: EncodedDocument, scored: Scored) -> "Judged":
        known = (document.num_candidates, scored.rho, document.prior, scored.psi, scored.belief, document.evidence)
        return cls(surfaces, *known)

    @classmethod
    def by_prior(cls, surfaces: Sequence[str], firsts: Sequence[Sequence[PriorCandidate]]) -> "Judged":
        """The logarithms of the priors are the scores."""
        counts = np.array([*map(len, firsts)], np.int64)
        cells = [(each.prior, each.support) for first in firsts for each in first]
        values = np.zeros((len(firsts), max(int(counts.max(initial=0)), 1), 2), np.float32)
        values[np.arange(values.shape[1]) < counts[:, None]] = np.array(cells, np.float32).reshape(-1, 2)
        prior = values[..., 0]
        return cls(
            surfaces, counts, log_prior(prior), prior, evidence=(np.log1p(values[..., 1:]) / 5).astype(np.float32)
        )


class Certain(NamedTuple):
    """Calibrated probabilities."""

    candidates: Floats
    """[n, S]; 0 where there is no candidate."""
    none: Floats
    """[n]; 1 for a mention without candidates."""


class Certainty:
    """The fitted networks of one model."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._mean, self._deviation = weights["mean"], weights["deviation"]
        self._layers = [(weights[f"{place}.weight"], weights[f"{place}.bias"]) for place in range(3)]

    @classmethod
    def load(cls, path: Path) -> "Certainty":
        try:
            return cls(load_file(path))
        except (OSError, SafetensorError, KeyError) as error:
            raise ArtifactError(f"Cannot read {path}: {error}. Run jobs/train_linker.py again.") from error

    def judge(self, judged: Judged) -> Certain:
        x = np.clip((features(judged) - self._mean) / self._deviation, -LIMIT, LIMIT).astype(np.float32)
        outputs = np.mean([self._network(x, number) for number in range(len(self._layers[0][0]))], axis=0)
        is_candidate = _is_candidate(judged)
        scaled = np.logaddexp(np.float32(0), outputs[:, 1:] + _SOFT_ONE) * np.where(is_candidate, judged.rho, 0)
        none = np.where(judged.num_candidates > 0, 1 / (1 + np.exp(-outputs[:, 0])), 1)
        shares = np.where(is_candidate, np.exp(log_softmax(scaled.astype(np.float32), is_candidate)), 0)
        return Certain(((1 - none)[:, None] * shares).astype(np.float32), none.astype(np.float32))

    def _network(self, x: Floats, number: int) -> Floats:
        values = x
        for place, (weight, bias) in enumerate(self._layers):
            values = dots(np.maximum(values, 0) if place else values, weight[number]) + bias[number]
        return values


_SOFT_ONE = np.float32(np.log(np.expm1(1.0)))
"""log(1 + exp(this)) is 1: untrained networks leave the scores as they are."""


def features(judged: Judged) -> Floats:
    """x, a row for every mention; zeros for one without candidates."""
    rows = np.arange(len(judged.rho))
    is_candidate = _is_candidate(judged)
    has_any: Bools = judged.num_candidates > 0
    rho = np.where(is_candidate, judged.rho, np.float32(-1e30)).astype(np.float64)
    best = rho.argmax(axis=1)
    log_shares = log_softmax(judged.rho, is_candidate).astype(np.float64)
    shares = np.where(is_candidate, np.exp(log_shares), 0)
    highest = shares.max(axis=1)
    top = np.where(has_any, rho[rows, best], 0)
    prior = np.where(is_candidate, judged.prior, 0)
    of_best = prior[rows, best]
    psi = np.zeros_like(rho) if judged.psi is None else np.where(is_candidate, judged.psi, 0)
    belief = shares if judged.belief is None else np.where(is_candidate, judged.belief, 0)
    evidence = np.zeros((*rho.shape, 0)) if judged.evidence is None else judged.evidence
    evidence = evidence[rows, best] * has_any[:, None]
    mention = [
        log_shares[rows, best],
        highest,
        np.log1p(-np.minimum(highest, 1 - _LEAST)),
        -(shares * log_shares).sum(axis=1),
        top,
        top - log_shares[rows, best],  # logarithm of the sum of exp(rho)
        log_prior(of_best.astype(np.float32)),
        prior.max(axis=1),
        best == prior.argmax(axis=1),
        psi[rows, best],
        psi.max(axis=1),
        np.log(np.maximum(belief[rows, best], _LEAST)),
        judged.num_candidates / 10,
        judged.num_candidates == 1,
    ]
    known = [highest, of_best, has_any, top, *(evidence[:, _OF_DOCUMENT] if evidence.shape[1] > 1 else evidence).T]
    columns = [*mention, *evidence.T, *_written(judged.surfaces), *_of_the_others(known, judged.surfaces)]
    x: Floats = (np.stack(columns, axis=1) * has_any[:, None]).astype(np.float32)
    return x


def _is_candidate(judged: Judged) -> Bools:
    mask: Bools = np.arange(judged.rho.shape[1]) < judged.num_candidates[:, None]
    return mask


def _written(surfaces: Sequence[str]) -> Floats:
    """Length, words, and whether it is in capitals, begins in lower case, has a digit: [5, n]."""
    rows = [
        (
            min(len(surface), 100) / 10,
            min(len(surface.split()), 20),
            surface.isupper(),
            next((letter.islower() for letter in surface if letter.isalpha()), False),
            any(letter.isdigit() for letter in surface),
        )
        for surface in surfaces
    ]
    return np.array(rows, np.float32).T


def _of_the_others(known: Sequence[npt.NDArray[Any]], surfaces: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Means over the mentions with other names, and how many mentions, other names and repetitions there are."""
    columns = np.stack([*known], axis=1).astype(np.float64)
    _, name = np.unique(surfaces, return_inverse=True)
    repeated = np.bincount(name)
    own = np.zeros((len(repeated), columns.shape[1]))
    np.add.at(own, name, columns)
    num_others = len(surfaces) - repeated[name]
    means = (columns.sum(axis=0) - own[name]) / np.maximum(num_others, 1)[:, None]
    sizes = [np.log1p(num_others) / 3, np.full(len(surfaces), np.log1p(len(surfaces)) / 3), repeated[name] / 3]
    return [*means.T, *sizes]
