"""Wikidata ids of entities as readers see them; `wikidata` makes the part.

numbers.npy     entity -> 64 for Q64, 0 for none
entities.npy    the entities that have an id, in the order of their ids
persons.npy     entities whose type is human
"""

import bisect
import logging
import re

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part

logger = logging.getLogger(__name__)
_ID = re.compile(r"(?:https?://(?:www\.)?wikidata\.org/(?:entity|wiki)/)?[Qq]([1-9][0-9]{0,8})", re.ASCII)
PERSONS = "persons.npy"
URI = "http://www.wikidata.org/entity/"
"""Before an id, what RDF calls the thing."""


def number_of(text: str) -> int | None:
    """64 for Q64, also where it is written as an address of Wikidata; None for what is no id."""
    found = _ID.fullmatch(text.strip())
    return int(found[1]) if found else None


class WikidataIds:
    """The ids of all entities; none without a part."""

    def __init__(self, part: Part | None, num_entities: int) -> None:
        # without ids, one zero stands for all
        self.numbers = (
            np.broadcast_to(np.uint32(0), num_entities) if part is None else np.asarray(part.array("numbers"))
        )
        self._entities = np.zeros(0, np.int32) if part is None else np.asarray(part.array("entities"))

    def __len__(self) -> int:
        """How many entities have one."""
        return len(self._entities)

    def of(self, entity_ids: npt.NDArray[np.int64]) -> list[str | None]:
        return [f"Q{number}" if number else None for number in self.numbers[entity_ids].tolist()]

    def find(self, wikidata: str) -> int | None:
        """The entity of an id."""
        number = number_of(wikidata)
        if number is None:
            return None
        place = bisect.bisect_left(self._entities, number, key=self.numbers.__getitem__)
        entity = int(self._entities[place]) if place < len(self) else -1
        return entity if entity >= 0 and self.numbers[entity] == number else None


def persons_of(part: Part | None) -> npt.NDArray[np.int32]:
    """Entities that are persons by their type; none if nobody has told types."""
    is_told = part is not None and PERSONS in part.record.get("files", {})
    return np.asarray(part.array(PERSONS.removesuffix(".npy"))) if part and is_told else np.zeros(0, np.int32)


def ids_part(kb: KnowledgeBase) -> Part | None:
    """The ids of the current corpus, if it has any. Those of an older corpus belong to other entities: none is better."""
    parts = kb.manifest()["parts"]
    if "wikidata" not in parts:
        return None
    if parts["wikidata"]["parents"] != {"corpus": parts.get("corpus", {}).get("id")}:
        logger.warning("the Wikidata ids of %s belong to an older corpus: run `deeped wikidata` again", kb)
        return None
    return kb.open("wikidata")
