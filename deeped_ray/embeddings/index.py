"""FAISS over entity vectors: which entities are related to an entity, or to any vector of the same space.

Reads the part `vectors`, writes `index`: `entities.faiss`, whose rows are entity ids.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from deeped_ray.artifacts import KnowledgeBase, Part

_FILE = "entities.faiss"


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """The search index over entity vectors."""

    kind: Annotated[Literal["exact"], "inner product with every vector"] = "exact"


class Neighbor(NamedTuple):
    entity_id: int
    similarity: float


def build_index(kb: KnowledgeBase, config: IndexConfig) -> dict[str, Any]:
    """Make the index part unless it is there already; returns its size."""
    if not kb.is_current("index", config=config, parents=["vectors"]):
        with kb.write("index", config=config, parents=["vectors"]) as folder:
            vectors = kb.open("vectors").array("vectors")
            index = faiss.IndexFlatIP(vectors.shape[1])
            index.add(np.ascontiguousarray(vectors, dtype=np.float32))
            faiss.write_index(index, str(folder / _FILE))
    part = kb.open("index")
    return {"entities": EntityIndex(part).num_entities, "bytes": (part.path / _FILE).stat().st_size}


class EntityIndex:
    """Reads an index part."""

    def __init__(self, part: Part) -> None:
        self._index = faiss.read_index(str(part.path / _FILE))

    @property
    def num_entities(self) -> int:
        return int(self._index.ntotal)

    def neighbors(self, vector: npt.NDArray[np.float32], *, count: int) -> list[Neighbor]:
        """The entities with the largest inner product with a vector, nearest first."""
        query = np.ascontiguousarray(vector, dtype=np.float32)[None]
        similarities, entity_ids = self._index.search(query, max(0, min(count, self.num_entities)))
        return [
            Neighbor(int(entity_id), float(similarity))
            for entity_id, similarity in zip(entity_ids[0], similarities[0], strict=True)
        ]
