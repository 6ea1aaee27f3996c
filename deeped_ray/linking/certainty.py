"""How sure the linker may be: the probability of every candidate, and of none of them.

    P(none) = sigmoid(h(x))
    P(e)    = (1 - P(none)) softmax(t(x) rho)(e)

rho are the model's scores. x says what is known about the mention as a whole: how far ahead its best candidate is, what
speaks for it, how the mention is written, and how well the rest of the document is known. h and t are the two outputs of
small networks (`training.calibration`). The model's scores say which
candidate is best; only h and t say how good that is, so the order of the candidates stays.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from deeped_ray.corpus.priors import MAX_SURFACE, REMEMBERED, PriorCandidate
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking import answer_kernels as kernels
from deeped_ray.linking.encoding import EncodedDocument, EncodedGroup, Floats, Ints, log_prior
from deeped_ray.linking.retrieval import CONTEXT_FIT, COUNT, DOCUMENT_FIT, LINKS, numbered
from deeped_ray.linking.scoring import AllScored, Scored, arrays_of

LIMIT = 5.0
"""Standardised features are cut off here: far from what it was fitted to, a network says anything."""
_OF_DOCUMENT = np.array([CONTEXT_FIT, DOCUMENT_FIT, LINKS, COUNT]) - 1
"""Evidence of the other mentions' best candidates that tells how well a document is known; f's evidence lacks the prior."""


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
        prior = np.ascontiguousarray(values[..., 0])
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
        self._weights = tuple(weights[f"{place}.{kind}"] for place in range(3) for kind in ("weight", "bias"))

    @classmethod
    def load(cls, path: Path) -> "Certainty":
        try:
            return cls(load_file(path))
        except (OSError, SafetensorError, KeyError) as error:
            raise ArtifactError(f"Cannot read {path}: {error}. Run jobs/train_linker.py again.") from error

    def outputs(self, x: Floats) -> Floats:
        """h(x) and t(x), the latter before it is made positive."""
        outputs = np.zeros((len(x), 2), np.float32)
        kernels.networks(x, self._mean, self._deviation, np.float32(LIMIT), self._weights, outputs)
        return outputs

    def judge(self, judged: Judged) -> Certain:
        return Certain(*kernels.judge(*_given(judged), *self._networks))

    def judge_all(self, surfaces: Sequence[str], names: Ints, group: EncodedGroup, scored: AllScored) -> Certain:
        """For every window of a group; arrays are flat, one window after the other. `names` number equal surfaces."""
        scores = scored.rho, scored.psi, scored.belief
        of_document = _of_document(group.num_evidence)
        given = (arrays_of(group), scores, of_document, _all_written(surfaces), names)
        return Certain(*kernels.judge_all(*given, *self._networks))

    @property
    def _networks(self) -> tuple[Any, ...]:
        return (self._mean, self._deviation, np.float32(LIMIT)), self._weights, _SOFT_ONE


_SOFT_ONE = np.float32(np.log(np.expm1(1.0)))
"""log(1 + exp(this)) is 1: untrained networks leave the scores as they are."""


def features(judged: Judged) -> Floats:
    """x, a row for every mention; zeros for one without candidates."""
    given, of_document, written, name = _given(judged)
    num_columns = kernels.OF_MENTION + given[-1].shape[2] + kernels.OF_NAME
    num_columns += kernels.OF_OTHERS + len(of_document) + kernels.SIZES
    x = np.zeros((len(judged.rho), num_columns), np.float32)
    if len(x):
        kernels.features(*given, of_document, written, name, x)
    return x


def _given(judged: Judged) -> tuple[tuple[Any, ...], Ints, Floats, Ints]:
    """What the kernels are given: arrays of candidates, columns of evidence, how mentions are written, their names."""
    nothing = np.zeros((len(judged.rho), 0), np.float32)
    psi, belief = (nothing if each is None else each for each in (judged.psi, judged.belief))
    evidence = np.zeros((*judged.rho.shape, 0), np.float32) if judged.evidence is None else judged.evidence
    given = (judged.num_candidates, judged.rho, judged.prior, psi, belief, evidence)
    return given, _of_document(evidence.shape[2]), _all_written(judged.surfaces), numbered(judged.surfaces)


def _of_document(num_evidence: int) -> Ints:
    return _OF_DOCUMENT if num_evidence > 1 else np.arange(num_evidence)


def _all_written(surfaces: Sequence[str]) -> Floats:
    """How each is written."""
    joined = bytearray().join([_written(surface[:MAX_SURFACE]) for surface in surfaces])
    return np.frombuffer(joined, np.float32).reshape(-1, kernels.OF_NAME)


@functools.lru_cache(maxsize=REMEMBERED)
def _written(surface: str) -> bytes:
    """Length, words, and whether it is in capitals, begins in lower case, has a digit: in bytes, which are joined quickly."""
    found = (
        min(len(surface), 100) / 10,
        min(len(surface.split()), 20),
        surface.isupper(),
        next((letter.islower() for letter in surface if letter.isalpha()), False),
        any(letter.isdigit() for letter in surface),
    )
    return np.array(found, np.float32).tobytes()
