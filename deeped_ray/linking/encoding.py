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


class Kept(NamedTuple):
    """Candidates of all mentions, one mention after the other."""

    mention: Ints
    entity: Ints
    evidence: Floats
    """Of each, beginning with the prior and the other sources."""
    spread: Floats
    """What evidence is divided by for f."""
    num_sources: int


def encode_rows(
    known: Ints, sides: Ints, kept: Kept, golds: Sequence[int | None], *, num_evidence: int
) -> EncodedDocument:
    """From the rows of word vectors of a text, the sides of each mention's context among them, and all candidates.

    `sides` are those of `KnownWords.contexts`.
    """
    num_candidates = np.bincount(kept.mention, minlength=len(sides))
    n, S = len(sides), max(int(num_candidates.max()), 1)
    num_words = sides[:, 1] - sides[:, 0] + sides[:, 3] - sides[:, 2]
    words = np.sort(known[int(sides[:, 0].min()) : int(sides[:, 3].max())])
    entities = np.sort(kept.entity)
    context = np.zeros((n, max(int(num_words.max()), 1)), np.int64)
    candidates, prior = np.zeros((n, S), np.int64), np.zeros((n, S), np.float32)
    evidence, sources = np.zeros((n, S, num_evidence), np.float32), np.zeros((n, S), np.int8)
    gold = np.array([-1 if each is None else each for each in golds])
    num_distinct = kernels.lay_out(
        known, sides, *kept, words, entities, context, candidates, prior, evidence, sources, gold
    )
    nothing = np.zeros(1, np.int64)
    return EncodedDocument(
        words=words[: num_distinct[0]] if len(words) else nothing,
        entities=entities[: num_distinct[1]] if len(entities) else nothing,
        context=context,
        num_words=num_words,
        candidates=candidates,
        num_candidates=num_candidates,
        prior=prior,
        evidence=evidence,
        sources=sources,
        gold=gold,
    )


def padded(values: npt.NDArray[Scalar], lengths: Ints) -> npt.NDArray[Scalar]:
    """Rows of these lengths, filled up with zeros."""
    rows = np.zeros((len(lengths), int(lengths.max(initial=1)), *values.shape[1:]), values.dtype)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = values
    return rows


def log_prior(prior: Floats) -> Floats:
    return np.log(np.maximum(prior, np.float32(MIN_PRIOR)))
