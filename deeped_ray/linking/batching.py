"""Documents -> tensors, the same for training, evaluation and serving.

A document's mentions share most of their context words and many of their candidates, so its distinct words and entities
are gathered once, and mentions refer to them by position.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Differs from the paper: the authors' code has this floor. Below it counts say nothing, and log p would dwarf the rest.
MIN_PRIOR = 1e-3
Ints = npt.NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """Mentions that are linked jointly, as the model sees them. In every row what is there comes first, then padding."""

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
    prior: npt.NDArray[np.float32]
    """p(e|m), [n, S]."""
    gold: Ints
    """Position of the gold entity among the candidates, -1 if it is not there or not known."""

    def __len__(self) -> int:
        return len(self.gold)

    def without_gold(self, rows: Sequence[int]) -> "EncodedDocument":
        """The same document with some mentions as mere company for the others."""
        gold = self.gold.copy()
        gold[list(rows)] = -1
        return replace(self, gold=gold)


def encode_document(
    contexts: Sequence[Ints],
    candidates: Sequence[Sequence[int]],
    priors: Sequence[Sequence[float]],
    gold: Sequence[int],
) -> EncodedDocument:
    """From rows of word vectors, rows of entity vectors and priors, mention by mention."""
    words, context = np.unique(np.concatenate(contexts), return_inverse=True)
    flat_candidates = np.array([row for rows in candidates for row in rows], np.int64)
    entities, chosen = np.unique(flat_candidates, return_inverse=True)
    flat_priors = np.array([prior for row in priors for prior in row], np.float32)
    num_words, num_candidates = np.array([*map(len, contexts)], np.int64), np.array([*map(len, candidates)], np.int64)
    return EncodedDocument(
        words=words,
        entities=entities,
        context=_padded(context, num_words),
        num_words=num_words,
        candidates=_padded(chosen, num_candidates),
        num_candidates=num_candidates,
        prior=_padded(flat_priors, num_candidates),
        gold=np.array(gold, np.int64),
    )


def _padded(values: npt.NDArray[Scalar], lengths: Ints) -> npt.NDArray[Scalar]:
    """Rows of these lengths, filled up with zeros."""
    rows = np.zeros((len(lengths), int(lengths.max(initial=0))), values.dtype)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = values
    return rows


@dataclass(frozen=True)
class Batch:
    """B padded documents; see `attention` for the letters."""

    entity_vectors: Float[Tensor, "B E d"]
    word_vectors: Float[Tensor, "B W d"]
    candidates: Int[Tensor, "B n S"]
    context: Int[Tensor, "B n K"]
    is_candidate: Bool[Tensor, "B n S"]
    is_word: Bool[Tensor, "B n K"]
    log_prior: Float[Tensor, "B n S"]
    gold: Int[Tensor, "B n"]

    def gather_context(self, scores: Float[Tensor, "B E W"]) -> Float[Tensor, "B n S K"]:
        """Entity-word scores of every candidate with every context word of its mention."""
        documents = torch.arange(scores.shape[0], device=scores.device)[:, None, None, None]
        return scores[documents, self.candidates[..., None], self.context[:, :, None, :]]

    def gather_pairs(self, scores: Float[Tensor, "B E E"]) -> Float[Tensor, "B n S n S"]:
        """Entity-entity scores of every candidate with every other."""
        B, n, S = self.candidates.shape
        flat = self.candidates.reshape(B, n * S)
        documents = torch.arange(B, device=scores.device)[:, None, None]
        return scores[documents, flat[:, :, None], flat[:, None, :]].reshape(B, n, S, n, S)

    def to(self, target: torch.device | torch.dtype) -> "Batch":
        """On another device, or with other floats."""
        is_dtype = isinstance(target, torch.dtype)
        moved = {
            name: tensor.to(target) if tensor.is_floating_point() or not is_dtype else tensor
            for name, tensor in vars(self).items()
        }
        return Batch(**moved)


def collate(
    documents: Sequence[EncodedDocument],
    word_vectors: npt.NDArray[np.float32],
    entity_vectors: npt.NDArray[np.float32],
) -> Batch:
    """Pad documents to common sizes; at least one mention, candidate and word, so that no axis is empty."""
    B = len(documents)
    n, S = _largest(len(document) for document in documents), _largest(d.candidates.shape[1] for d in documents)
    W, E = _largest(len(document.words) for document in documents), _largest(len(d.entities) for d in documents)
    K, d = _largest(document.context.shape[1] for document in documents), word_vectors.shape[1]
    words, entities = np.zeros((B, W, d), np.float32), np.zeros((B, E, d), np.float32)
    candidates, prior = np.zeros((B, n, S), np.int64), np.ones((B, n, S), np.float32)
    context, gold = np.zeros((B, n, K), np.int64), np.full((B, n), -1, np.int64)
    num_candidates, num_words = np.zeros((B, n), np.int64), np.zeros((B, n), np.int64)
    for b, document in enumerate(documents):
        words[b, : len(document.words)] = word_vectors[document.words]
        entities[b, : len(document.entities)] = entity_vectors[document.entities]
        for padded, values in (
            (candidates, document.candidates),
            (prior, document.prior),
            (context, document.context),
        ):
            padded[b, : values.shape[0], : values.shape[1]] = values
        for padded_counts, counts in (
            (num_candidates, document.num_candidates),
            (num_words, document.num_words),
            (gold, document.gold),
        ):
            padded_counts[b, : len(counts)] = counts
    is_candidate, is_word = np.arange(S) < num_candidates[..., None], np.arange(K) < num_words[..., None]
    return Batch(
        entity_vectors=torch.from_numpy(entities),
        word_vectors=torch.from_numpy(words),
        candidates=torch.from_numpy(candidates),
        context=torch.from_numpy(context),
        is_candidate=torch.from_numpy(is_candidate),
        is_word=torch.from_numpy(is_word),
        log_prior=torch.from_numpy(np.where(is_candidate, np.log(np.maximum(prior, MIN_PRIOR)), 0).astype(np.float32)),
        gold=torch.from_numpy(gold),
    )


def similar_sizes(documents: Sequence[EncodedDocument], *, per_batch: int) -> list[list[int]]:
    """Numbers of documents, those of similar size together: a batch is padded to its largest."""
    order = sorted(range(len(documents)), key=lambda number: len(documents[number]))
    return [order[start : start + per_batch] for start in range(0, len(order), per_batch)]


def _largest(sizes: Iterable[int]) -> int:
    return max(1, max(sizes, default=0))
