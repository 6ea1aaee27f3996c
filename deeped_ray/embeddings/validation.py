"""What says how good entity vectors are while they are made: held-out links, or judgements of relatedness."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus import teaching
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.text import words_of

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
MAX_CANDIDATES = 30
CONTEXT = 300
"""Characters on each side of a link."""
EVERY = 5
"""Of so many mentions, one is asked: neighbours have the same words around them."""


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
        mentions, catalogue = MentionTable(corpus), Catalogue(corpus)
        self._contexts: list[Floats] = []
        self._candidates: list[Ids] = []
        for document in teaching.read(corpus, "dev"):
            for mention in document.mentions[::EVERY]:
                gold = catalogue.find_gold(mention)
                surface = document.surface(mention)
                candidates = [candidate.entity_id for candidate in mentions.candidates(surface)[:MAX_CANDIDATES]]
                around = document.text[: mention.start][-CONTEXT:] + document.text[mention.end :][:CONTEXT]
                rows = [row for word in words_of(around) if (row := words.find(word)) is not None]
                if rows and len(candidates) > 1 and gold in candidates:
                    self._contexts.append(words.vectors[rows].mean(axis=0))
                    self._candidates.append(np.array([gold, *(entity for entity in candidates if entity != gold)]))
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
