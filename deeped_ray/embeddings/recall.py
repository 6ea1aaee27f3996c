"""How good and how fast an index of entity vectors is, compared with exact search."""

import time
from dataclasses import dataclass
from typing import Annotated, Any

import faiss
import numpy as np
from jaxtyping import Float, Int

from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import JOB_FLAG
from deeped_ray.types import DeepEdError, require_at_least

_AT = 10
_BLOCK = 500_000
_TIE = 1e-5  # cosines of equal vectors, summed in another order


@dataclass(frozen=True, kw_only=True)
class RecallConfig:
    """How good the index is."""

    recall: Annotated[bool, "measure recall@10 and queries/s against exact search", JOB_FLAG] = False
    recall_queries: Annotated[int, "entities to search the neighbours of, drawn at random"] = 500
    recall_seed: Annotated[int, "seed of the draw"] = 0

    def __post_init__(self) -> None:
        require_at_least(1, self, "recall_queries")


def index_recall(kb: KnowledgeBase, config: RecallConfig) -> dict[str, Any]:
    """Recall and speed of a knowledge base's index on entities drawn at random, themselves left out."""
    vectors = np.asarray(kb.open("vectors").array("vectors"))
    drawn = np.random.default_rng(config.recall_seed).permutation(len(vectors))[: 2 * config.recall_queries]
    queries = drawn[vectors[drawn].any(axis=1)][: config.recall_queries]
    if not len(queries):
        raise DeepEdError(f"No vectors to ask for in {kb}: no entity has evidence.")
    return recall_of(EntityIndex.open(kb), vectors, queries)


def recall_of(
    index: EntityIndex, vectors: Float[np.ndarray, "E d"], entities: Int[np.ndarray, " queries"]
) -> dict[str, Any]:
    """Of the 10 nearest others, how many are found; an entity as near as the tenth is as good as it."""
    queries = vectors[entities]
    index.search(queries[:1], count=_AT)  # reads what is mapped
    start = time.perf_counter()
    found = index.search(queries, count=_AT, without=[[each] for each in entities.tolist()])
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    cosines, nearest = exact_neighbors(vectors, queries, count=_AT + 1)
    exact_s = time.perf_counter() - start
    hits = total = 0
    for answer, entity, true, ids in zip(found, entities.tolist(), cosines, nearest, strict=True):
        others = true[(ids != entity) & (ids >= 0)][:_AT]
        hits += sum(neighbor.similarity >= others[-1] - _TIE for neighbor in answer) if len(others) else 0
        total += len(others)
    return {
        "queries": len(entities),
        "recall_at_10": round(hits / max(1, total), 4),
        "queries_per_s": round(len(entities) / ours_s, 1),
        "exact_queries_per_s": round(len(entities) / exact_s, 1),
        "speed_up": round(exact_s / ours_s, 1),
    }


def exact_neighbors(
    vectors: Float[np.ndarray, "E d"], queries: Float[np.ndarray, "B d"], *, count: int
) -> tuple[Float[np.ndarray, "B count"], Int[np.ndarray, "B count"]]:
    """Compare with every vector, block by block, so that memory-mapped ones need not fit memory."""
    best = np.full((len(queries), count), -np.inf, np.float32)
    ids = np.full((len(queries), count), -1, np.int64)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        cosines, rows = faiss.knn(queries, block, min(count, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        is_empty = ~block[rows].any(axis=2)  # zeros are no neighbours
        both, both_ids = np.hstack([best, np.where(is_empty, -np.inf, cosines)]), np.hstack([ids, rows + start])
        order = np.argsort(-both, axis=1, kind="stable")[:, :count]
        best, ids = np.take_along_axis(both, order, axis=1), np.take_along_axis(both_ids, order, axis=1)
    return best, np.where(np.isfinite(best), ids, -1)
