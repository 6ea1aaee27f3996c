"""What says how good entity vectors are while they are made: held-out links, or judgements of relatedness."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus import heldout
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
MAX_CANDIDATES = 30


@runtime_checkable
class Validation(Protocol):
    """Scores the vectors of the entities it is about; more is better."""

    name: str
    entities: Ids

    def score(self, vectors: Floats) -> float:
        """`vectors` are those of `entities`, in this order."""


class HeldOutLinks:
    """Mean reciprocal rank of the entity a held-out link leads to, among its mention's candidates, by context alone."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.name = "held-out links"
        corpus, words = kb.open("corpus"), Words(kb.open("words"))
        mentions = MentionTable(corpus)
        rows_of_ids = words.rows_of_corpus_ids(len(corpus.array("vocabulary.counts")))
        self._contexts: list[Floats] = []
        self._candidates: list[Ids] = []
        for link in heldout.read(corpus):
            rows = rows_of_ids[link.words]
            rows = rows[rows >= 0]
            candidates = [candidate.entity_id for candidate in mentions.candidates(link.mention)[:MAX_CANDIDATES]]
            if len(rows) and len(candidates) > 1 and link.entity_id in candidates:
                self._contexts.append(words.vectors[rows].mean(axis=0))
                others = [entity for entity in candidates if entity != link.entity_id]
                self._candidates.append(np.array([link.entity_id, *others]))
        self.entities = np.unique(np.concatenate([*self._candidates, np.zeros(0, np.int64)])).astype(np.int64)

    def __len__(self) -> int:
        return len(self._contexts)

    def score(self, vectors: Floats) -> float:
        reciprocal_ranks = []
        for context, candidates in zip(self._contexts, self._candidates, strict=True):
            scores = vectors[np.searchsorted(self.entities, candidates)] @ context
            # ties share their places, so that vectors which distinguish nothing do not look perfect
            rank = 1 + np.count_nonzero(scores[1:] > scores[0]) + np.count_nonzero(scores[1:] == scores[0]) / 2
            reciprocal_ranks.append(1 / rank)
        return float(np.mean(reciprocal_ranks)) if reciprocal_ranks else 0.0
