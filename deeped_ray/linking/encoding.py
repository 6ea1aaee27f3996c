"""A document as the model sees it, in plain arrays.

A document's mentions share most of their context words and many of their candidates. So its distinct words and entities
are gathered once, and mentions refer to them by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from deeped_ray.linking import layout_kernels as kernels

# Differs from the paper: the authors' code has this floor. Below it counts say nothing, and log p would dwarf the rest.
MIN_PRIOR = 1e-3
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """Mentions that are linked jointly, as the model sees them. A row holds its values first, then padding.

    No axis is empty: a document without words or candidates has one of each that no mention refers to.
    """

    words: Ints
    """Rows of word vectors, distinct."""
    entities: Ints
    """Rows of entity vectors, distinct."""
    context: Ints
    """Positions in `words`, [n, K]."""
    num_words: Ints
    candidates: Ints
    """Positions in `entities`, [n, S]."""
    num_candidates: Ints
    prior: Floats
    """p(e|m), [n, S]."""
    evidence: Floats
    """What f is given beside belief and prior, [n, S, F]; F is 0 for the paper's f."""
    sources: npt.NDArray[np.int8]
    """Where each candidate came from, [n, S]: see `retrieval.SOURCES`."""
    gold: Ints
    """Position of the gold entity among the candidates. -1: it is not among them, or not known."""
    weight: float = 1.0
    """Of its mentions in the training loss."""

    def __len__(self) -> int:
        return len(self.gold)


def encode_document(
    contexts: Sequence[Ints],
    candidates: Sequence[Sequence[int]],
    priors: Sequence[Sequence[float]],
    gold: Sequence[int],
    *,
    evidence: Floats | None = None,
    sources: npt.NDArray[np.int8] | None = None,
) -> EncodedDocument:
    """From rows of word vectors, rows of entity vectors and priors, mention by mention.

    `evidence` and `sources` have a row for every candidate of every mention, in this order.
    """
    words, context = np.unique(np.concatenate(contexts), return_inverse=True)
    flat_candidates = np.array([row for rows in candidates for row in rows], np.int64)
    entities, chosen = np.unique(flat_candidates, return_inverse=True)
    flat_priors = np.array([prior for row in priors for prior in row], np.float32)
    num_words, num_candidates = np.array([*map(len, contexts)], np.int64), np.array([*map(len, candidates)], np.int64)
    nothing = np.zeros(1, np.int64)
    return EncodedDocument(
        words=words if len(words) else nothing,
        entities=entities if len(entities) else nothing,
        context=padded(context, num_words),
        num_words=num_words,
        candidates=padded(chosen, num_candidates),
        num_candidates=num_candidates,
        prior=padded(flat_priors, num_candidates),
        evidence=padded(np.zeros((len(flat_priors), 0), np.float32) if evidence is None else evidence, num_candidates),
        sources=padded(np.zeros(len(flat_priors), np.int8) if sources is None else sources, num_candidates),
        gold=np.array(gold, np.int64),
    )


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """Windows as the compiled code reads them, one after the other: each is an `EncodedDocument` whose arrays are flat."""

    layout: Ints
    """Where what belongs to each window begins, [windows + 1, 6]: see `layout_kernels`."""
    widths: Ints
    """K and S of each window."""
    words: Ints
    entities: Ints
    context: Ints
    num_words: Ints
    candidates: Ints
    num_candidates: Ints
    prior: Floats
    evidence: Floats
    sources: npt.NDArray[np.int8]
    gold: Ints

    @classmethod
    def of(cls, documents: Sequence[EncodedDocument]) -> "EncodedGroup":
        sizes = [
            (len(each), each.context.size, each.candidates.size, len(each.words), len(each.entities), len(each) ** 2)
            for each in documents
        ]
        layout = np.zeros((len(documents) + 1, 6), np.int64)
        np.cumsum(np.array(sizes, np.int64).reshape(-1, 6), axis=0, out=layout[1:])
        widths = np.array([(each.context.shape[1], each.candidates.shape[1]) for each in documents], np.int64)
        names = [name for name in cls.__slots__ if name not in ("layout", "widths")]
        columns = [np.concatenate([np.ravel(getattr(each, name)) for each in documents]) for name in names]
        return cls(layout, widths, *columns)

    def __len__(self) -> int:
        return len(self.widths)

    @property
    def num_evidence(self) -> int:
        return len(self.evidence) // max(len(self.prior), 1)

    def window(self, number: int) -> EncodedDocument:
        """Of its arrays, no copy."""
        (m, k, c, w, e, _), (m_end, k_end, c_end, w_end, e_end, _) = self.layout[number : number + 2].tolist()
        n, F, S = m_end - m, self.num_evidence, self.widths[number, 1]
        return EncodedDocument(
            words=self.words[w:w_end],
            entities=self.entities[e:e_end],
            context=self.context[k:k_end].reshape(n, -1),
            num_words=self.num_words[m:m_end],
            candidates=self.candidates[c:c_end].reshape(n, S),
            num_candidates=self.num_candidates[m:m_end],
            prior=self.prior[c:c_end].reshape(n, S),
            evidence=self.evidence[F * c : F * c_end].reshape(n, S, F),
            sources=self.sources[c:c_end].reshape(n, S),
            gold=self.gold[m:m_end],
        )


class Kept(NamedTuple):
    """Candidates of all mentions of a group, one mention after the other."""

    bounds: Ints
    """Where those of each window begin, and where those of one more would."""
    mention: Ints
    """Place in the window."""
    entity: Ints
    evidence: Floats
    """Of each, beginning with the prior and the other sources."""
    spread: Floats
    """What evidence is divided by for f."""
    num_sources: int

    def where(self, is_kept: npt.NDArray[np.bool_]) -> "Kept":
        bounds = np.append(0, np.cumsum(is_kept))[self.bounds]
        return self._replace(
            bounds=bounds, mention=self.mention[is_kept], entity=self.entity[is_kept], evidence=self.evidence[is_kept]
        )


def encode_group(
    bounds: Ints, known: Ints, sides: Ints, kept: Kept, golds: Sequence[int | None], *, num_evidence: int
) -> EncodedGroup:
    """From the rows of word vectors of a text, the sides of each mention's context among them, and all candidates.

    `sides` are those of `KnownWords.contexts`. Mentions of window i are [bounds[i], bounds[i + 1]).
    """
    gold = np.array([-1 if each is None else each for each in golds], np.int64)
    rows = kept.mention, kept.entity, kept.evidence
    given = (bounds, kept.bounds, rows, known, sides, kept.spread, kept.num_sources, num_evidence)
    return EncodedGroup(*kernels.lay_out(*given, gold))


def padded(values: npt.NDArray[Scalar], lengths: Ints) -> npt.NDArray[Scalar]:
    """Rows of these lengths, filled up with zeros."""
    rows = np.zeros((len(lengths), int(lengths.max(initial=1)), *values.shape[1:]), values.dtype)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = values
    return rows


def log_prior(prior: Floats) -> Floats:
    return np.log(np.maximum(prior, np.float32(MIN_PRIOR)))
