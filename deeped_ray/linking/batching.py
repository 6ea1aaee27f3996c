"""Documents -> tensors, for training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.encoding import EncodedDocument, Scalar, log_prior


class Padded(NamedTuple):
    """What torch's operators need on top of a batch: B documents of common sizes. See `attention` for the letters."""

    entity_vectors: Float[Tensor, "B E d"]
    word_vectors: Float[Tensor, "B W d"]
    candidates: Int[Tensor, "B n S"]
    context: Int[Tensor, "B n K"]
    is_word: Bool[Tensor, "B n K"]

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


@dataclass(frozen=True)
class Batch:
    """B documents. The kernels take them one by one, as they are; f and the losses take [B, n, S]."""

    documents: Sequence[EncodedDocument]
    entity_vectors: Float[Tensor, "E d"]
    """Of the first document, then of the second, and so on."""
    word_vectors: Float[Tensor, "W d"]
    candidates: Int[Tensor, "B n S"]
    """Rows of `entity_vectors`."""
    is_candidate: Bool[Tensor, "B n S"]
    log_prior: Float[Tensor, "B n S"]
    evidence: Float[Tensor, "B n S F"]
    gold: Int[Tensor, "B n"]
    weight: Float[Tensor, " B"]

    def one_by_one(self) -> Iterator[tuple[EncodedDocument, Float[Tensor, "_ d"], Float[Tensor, "_ d"]]]:
        """Every document with the vectors of its entities and of its words."""
        entities = self.entity_vectors.split([len(document.entities) for document in self.documents])
        words = self.word_vectors.split([len(document.words) for document in self.documents])
        return zip(self.documents, entities, words, strict=True)

    @cached_property
    def padded(self) -> Padded:
        _, *vectors = zip(*self.one_by_one(), strict=True)
        entities, words = (pad_sequence(list(each), batch_first=True) for each in vectors)
        candidates, context, num_words = (
            torch.from_numpy(_stack([getattr(document, name) for document in self.documents])).to(entities.device)
            for name in ("candidates", "context", "num_words")
        )
        is_word = torch.arange(context.shape[2], device=entities.device) < num_words[..., None]
        return Padded(entities, words, candidates, context, is_word)

    def to(self, target: torch.device | torch.dtype) -> "Batch":
        """On another device, or with other floats."""
        is_device = isinstance(target, torch.device)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: Any = {name: t.to(target) for name, t in tensors.items() if is_device or t.is_floating_point()}
        return replace(self, **moved)


def collate(
    documents: Sequence[EncodedDocument],
    word_vectors: npt.NDArray[np.float32],
    entity_vectors: Layers | npt.NDArray[np.float32],
) -> Batch:
    """Gather the vectors of some documents, and stack what f and the losses need."""
    first_rows = np.cumsum([0, *(len(document.entities) for document in documents[:-1])])
    candidates = _stack([d.candidates + first for d, first in zip(documents, first_rows, strict=True)])
    prior = _stack([document.prior for document in documents], fill=1)
    is_candidate = np.arange(prior.shape[2]) < _stack([document.num_candidates for document in documents])[..., None]
    return Batch(
        documents=documents,
        entity_vectors=torch.from_numpy(entity_vectors[np.concatenate([document.entities for document in documents])]),
        word_vectors=torch.from_numpy(word_vectors[np.concatenate([document.words for document in documents])]),
        candidates=torch.from_numpy(candidates),
        is_candidate=torch.from_numpy(is_candidate),
        log_prior=torch.from_numpy(np.where(is_candidate, log_prior(prior), 0)),
        evidence=torch.from_numpy(_stack([document.evidence for document in documents])),
        gold=torch.from_numpy(_stack([document.gold for document in documents], fill=-1)),
        weight=torch.tensor([document.weight for document in documents], dtype=torch.float32),
    )


def _stack(arrays: Sequence[npt.NDArray[Scalar]], *, fill: int = 0) -> npt.NDArray[Scalar]:
    """[B, ...]: arrays filled up to the largest."""
    stacked = np.full((len(arrays), *np.max([array.shape for array in arrays], axis=0)), fill, arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return stacked


def similar_sizes(documents: Sequence[EncodedDocument], *, per_batch: int) -> list[list[int]]:
    """Numbers of documents, in batches of similar size: a batch is padded to its largest document."""
    order = sorted(range(len(documents)), key=lambda number: len(documents[number]))
    return [order[start : start + per_batch] for start in range(0, len(order), per_batch)]
