"""Documents -> tensors, the same for training, evaluation and serving.

A document's mentions share most of their context words and many of their candidates, so its distinct words and entities
are gathered once, and mentions refer to them by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deeped_ray.corpus.priors import PriorCandidate

# Differs from the paper: the authors' code has this floor. Below it counts say nothing, and log p would dwarf the rest.
MIN_PRIOR = 1e-3


@dataclass(frozen=True, slots=True)
class EncodedMention:
    """A mention as the model sees it."""

    context: list[int]
    """Rows of word vectors."""
    candidates: list[PriorCandidate]
    gold: int = -1
    """Position of the gold entity among the candidates, -1 if it is not there or not known."""


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


def collate(
    documents: Sequence[Sequence[EncodedMention]],
    word_vectors: npt.NDArray[np.float32],
    entity_vectors: npt.NDArray[np.float32],
) -> Batch:
    """Pad documents to common sizes; at least one mention, candidate and word, so that no axis is empty."""
    B = len(documents)
    mentions = [mention for document in documents for mention in document]
    n = max(1, max((len(document) for document in documents), default=0))
    S = max(1, max((len(mention.candidates) for mention in mentions), default=0))
    K = max(1, max((len(mention.context) for mention in mentions), default=0))
    candidates, log_prior = np.zeros((B, n, S), np.int64), np.zeros((B, n, S), np.float32)
    context, gold = np.zeros((B, n, K), np.int64), np.full((B, n), -1, np.int64)
    is_candidate, is_word = np.zeros((B, n, S), bool), np.zeros((B, n, K), bool)
    word_rows, entity_rows = [], []
    for b, document in enumerate(documents):
        words, entities = _Distinct(), _Distinct()
        for i, mention in enumerate(document):
            s, k = len(mention.candidates), len(mention.context)
            candidates[b, i, :s] = [entities.position(candidate.entity_id) for candidate in mention.candidates]
            log_prior[b, i, :s] = np.log([max(candidate.prior, MIN_PRIOR) for candidate in mention.candidates])
            context[b, i, :k] = [words.position(row) for row in mention.context]
            is_candidate[b, i, :s], is_word[b, i, :k], gold[b, i] = True, True, mention.gold
        word_rows.append(words.rows)
        entity_rows.append(entities.rows)
    return Batch(
        entity_vectors=_gather(entity_vectors, entity_rows),
        word_vectors=_gather(word_vectors, word_rows),
        candidates=torch.from_numpy(candidates),
        context=torch.from_numpy(context),
        is_candidate=torch.from_numpy(is_candidate),
        is_word=torch.from_numpy(is_word),
        log_prior=torch.from_numpy(log_prior),
        gold=torch.from_numpy(gold),
    )


class _Distinct:
    """Numbers distinct rows in order of appearance."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}

    def position(self, row: int) -> int:
        return self._positions.setdefault(row, len(self._positions))

    @property
    def rows(self) -> list[int]:
        return list(self._positions)


def _gather(vectors: npt.NDArray[np.float32], rows: Sequence[Sequence[int]]) -> Float[Tensor, "B X d"]:
    width = max(1, max(map(len, rows), default=0))
    gathered = np.zeros((len(rows), width, vectors.shape[1]), dtype=np.float32)
    for b, document_rows in enumerate(rows):
        gathered[b, : len(document_rows)] = vectors[document_rows]
    return torch.from_numpy(gathered)
