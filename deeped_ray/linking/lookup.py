"""What a knowledge base knows about entities and names: the same answers for Python, the command line and the server."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.name_index import EQUALS, KINDS, NameIndex
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.layers import Layers
from deeped_ray.knowledge.parts import Part
from deeped_ray.types import (
    Entity,
    EntityDetails,
    EntityName,
    Name,
    NamedEntity,
    RelatedEntity,
    Sense,
    UnknownEntityError,
)

if TYPE_CHECKING:
    from deeped_ray.embeddings.index import EntityIndex
    from deeped_ray.embeddings.unseen import TextEmbedder


_LIKENESS = np.array([1.0, 0.95, 0.6, 0.8, 1.0, 0.5], np.float32)
"""What a full match of each kind counts: equals, words, initials, inflection, typo, part."""


MIN_MEANT = 0.6
"""Resemblance of a title that somebody may have meant."""


class Lookup:
    """Opens each part when it is first needed, and keeps it."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    @functools.cached_property
    def _corpus(self) -> Part:
        return self._kb.open("corpus")

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue.open(self._kb)

    @functools.cached_property
    def _mentions(self) -> MentionTable:
        return MentionTable(self._corpus)

    @functools.cached_property
    def _names(self) -> NameIndex:
        return NameIndex.open(self._kb)

    @functools.cached_property
    def _vectors(self) -> Layers:
        return Layers(np.asarray(self._kb.open("vectors").array("vectors")))

    # imported when needed: a look-up of a name does without FAISS

    @functools.cached_property
    def _index(self) -> "EntityIndex":
        from deeped_ray.embeddings.index import EntityIndex

        return EntityIndex.open(self._kb)

    @functools.cached_property
    def _embedder(self) -> "TextEmbedder":
        from deeped_ray.embeddings.unseen import TextEmbedder

        return TextEmbedder(self._kb)

    def open_all(self) -> "Lookup":
        """Open everything now: a knowledge base that is rebuilt later changes no answer."""
        for name in ("catalogue", "_mentions", "_vectors", "_index", "_names", "_embedder"):
            getattr(self, name)
        return self

    def entity(self, title: str) -> EntityDetails:
        """An entity by its title, by a redirect to it, or by its Wikidata id."""
        entity_id, catalogue = self._require(title), self.catalogue
        counts = int(catalogue.num_links[entity_id]), int(catalogue.num_words[entity_id])
        return EntityDetails(*self._entity(entity_id), bool(catalogue.is_person[entity_id]), *counts)

    def mention(self, surface: str) -> Name:
        """What a name can mean, most probable entity first."""
        match = self._mentions.match(surface)
        senses = (Sense(*self._entity(each.entity_id), each.prior, each.support) for each in match.candidates)
        return Name(match.mention, match.rule, tuple(senses))

    def names(self, title: str, *, count: int = 10) -> list[EntityName]:
        """The names by which an entity is called, most frequent first."""
        return [EntityName(*each) for each in self._mentions.names_of(self._require(title), count=count)]

    def starting_with(self, prefix: str, *, count: int = 10) -> list[Entity]:
        """Entities whose titles begin so, most linked first."""
        return [Entity(*self._entity(each)) for each in self.catalogue.starting_with(prefix, count=count)]

    def resembling(self, name: str, *, count: int = 10) -> list[NamedEntity]:
        """Entities with a title, redirect or anchor that resembles a name; the most similar first, then the most linked."""
        found = self._names.find(name)
        likeness = np.minimum(_LIKENESS[found.kinds] * np.where(found.kinds == EQUALS, 1, found.strengths), 1)
        order = np.lexsort((found.entities, -self.catalogue.num_links[found.entities], -likeness.round(3)))
        _, first = np.unique(found.entities[order], return_index=True)  # an entity may match in several ways
        rows = order[np.sort(first)[:count]].tolist()
        return [
            NamedEntity(
                *self._entity(int(found.entities[row])), round(float(likeness[row]), 3), KINDS[found.kinds[row]]
            )
            for row in rows
        ]

    def related(self, titles: str | Sequence[str] = (), text: str = "", *, count: int = 10) -> list[RelatedEntity]:
        """The entities nearest to an entity, to a text, or to a mix of several, without the given ones."""
        entity_ids = self._ids(titles)
        nearest = self._index.neighbors(self._mix(entity_ids, text), count=count, without=entity_ids)
        return [RelatedEntity(*self._entity(near.entity_id), near.similarity) for near in nearest]

    def mix(self, titles: str | Sequence[str], text: str = "") -> npt.NDArray[np.float32]:
        """The sum of the vectors of entities and of a text, scaled to unit length."""
        return self._mix(self._ids(titles), text)

    def _mix(self, entity_ids: list[int], text: str) -> npt.NDArray[np.float32]:
        vector = self._vectors[entity_ids].sum(axis=0)
        if text:
            vector = vector + self._embedder.embed("", text)
        mixed: npt.NDArray[np.float32] = vector / (np.linalg.norm(vector) or 1)
        return mixed

    def relatedness(self, title: str, other: str) -> float:
        """Cosine of two entities; 0 if one of them has no vector."""
        return float(self._vectors[self._require(title)] @ self._vectors[self._require(other)])

    def _entity(self, entity_id: int) -> tuple[str, int, str, str | None]:
        title = self.catalogue.title(entity_id)
        (wikidata,) = self.catalogue.wikidata.of(np.array([entity_id]))
        return title, int(self.catalogue.page_ids[entity_id]), self.catalogue.url(title), wikidata

    def _ids(self, titles: str | Sequence[str]) -> list[int]:
        return [self._require(title) for title in ([titles] if isinstance(titles, str) else titles)]

    def _require(self, title: str) -> int:
        entity_id = self.catalogue.identify(title)
        if entity_id is not None:
            return entity_id
        alike = self.resembling(title, count=3) if "index" in self._kb else []
        alike = [each for each in alike if each.resemblance >= MIN_MEANT]
        meant = " or ".join(f"{each.title!r}" for each in alike)
        hint = f" Perhaps {meant}?" if meant else ""
        raise UnknownEntityError(f"No entity {title!r} in this knowledge base.{hint}")
