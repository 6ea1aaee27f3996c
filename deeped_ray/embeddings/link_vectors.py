"""Vectors of entities from hyperlinks alone: two entities are near each other if the same pages link to them.

    X[p, e]   how often page p links to entity e, damped, times the rarity of e; rows have unit length
    l_e       row e of V S, where X = U S V' is cut to the largest singular values; then of unit length

A page counts as linking to itself. Entity vectors come from words (section 3). These vectors know nothing of words, so the
two are independent evidence of what belongs together. They are found by subspace iteration, which reads X a few times, in
blocks of entities: memory grows with the number of pages, not with that of entities.

    links.vectors.npy     [E, k], float16; zeros for an entity that no page links to
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Float16

from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.knowledge.parts import Part

DIMENSION = 64
"""128 numbers, or whitened ones, are no better evidence (docs/experiments.md)."""
SPARE_DIMENSIONS = 16
ITERATIONS = 3
LEAST_RARITY = 0.5
_BLOCK = 100_000


def write_link_vectors(folder: Path, graph: WordCounts) -> None:
    np.save(folder / "links.vectors.npy", link_vectors(graph))


def link_vectors(graph: WordCounts, *, dimension: int = DIMENSION, seed: int = 0) -> Float16[np.ndarray, "E k"]:
    """From who links to whom: `graph.row(entity)` has the entities that its page links to."""
    links = _weights(graph)
    num_entities, num_pages = links.shape
    k = min(dimension, num_pages)
    rng = np.random.default_rng(seed)
    axes = np.empty((num_pages, min(k + SPARE_DIMENSIONS, num_pages)), np.float32)
    for start in range(0, num_pages, _BLOCK):
        axes[start : start + _BLOCK] = rng.standard_normal(axes[start : start + _BLOCK].shape)
    for _ in range(ITERATIONS):
        turned = np.zeros_like(axes)
        for block in _blocks(links):
            turned += block.T @ (block @ axes)
        axes = orthonormal(turned)
    gram = sum((_gram(block @ axes) for block in _blocks(links)), np.zeros((axes.shape[1],) * 2))
    _, directions = np.linalg.eigh(gram)  # smallest first
    axes = (axes @ directions[:, ::-1][:, :k]).astype(np.float32)
    vectors = np.zeros((num_entities, k), np.float16)
    for number, block in enumerate(_blocks(links)):
        vectors[number * _BLOCK : (number + 1) * _BLOCK] = _units(block @ axes)
    return vectors


def _weights(graph: WordCounts) -> Any:
    """X', [E, pages that link]."""
    from scipy import sparse  # readers do without it

    lengths = np.diff(graph.offsets)
    pages = np.flatnonzero(lengths)
    numbers = np.arange(len(pages), dtype=np.int32)  # half as wide as they come: there is one for each link
    page = np.append(np.repeat(numbers, lengths[pages]), numbers)
    entity = np.append(np.asarray(graph.words, np.int32), pages.astype(np.int32))
    times = np.append((1 + np.log(graph.counts)).astype(np.float32), np.ones(len(pages), np.float32))
    links = sparse.csr_matrix((times, (entity, page)), shape=(len(graph), len(pages)))
    del page, entity, times
    num_pages_linking = np.diff(links.indptr)
    rarity = np.log((len(pages) + 1) / (num_pages_linking + 0.5)).clip(LEAST_RARITY)
    links = sparse.diags(rarity.astype(np.float32)) @ links
    lengths_of_pages = np.sqrt(np.asarray(links.multiply(links).sum(axis=0)).ravel())
    return (links @ sparse.diags((1 / lengths_of_pages).astype(np.float32))).tocsr()


def _blocks(links: Any) -> Iterator[Any]:
    return (links[start : start + _BLOCK] for start in range(0, links.shape[0], _BLOCK))


def orthonormal(columns: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """An orthonormal basis of the columns, whose memory it may take."""
    if len(columns) <= _BLOCK:
        return np.linalg.qr(columns)[0]
    # Householder's QR holds ten times the columns, and Cholesky's nothing beside them: Q = A inverse(R)
    rows = [slice(start, start + _BLOCK) for start in range(0, len(columns), _BLOCK)]
    gram = sum((_gram(columns[each]) for each in rows), np.zeros((columns.shape[1],) * 2))
    inverse = np.linalg.inv(np.linalg.cholesky(gram).T)
    for each in rows:
        columns[each] = columns[each] @ inverse
    return columns


def _gram(x: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "k k"]:
    wide = x.astype(np.float64)
    return wide.T @ wide


def _units(x: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1)


class LinkVectors:
    """Reads the vectors, mapped."""

    def __init__(self, index: Part) -> None:
        self._vectors: npt.NDArray[np.float16] = np.asarray(index.array("links.vectors"))

    @property
    def halves(self) -> npt.NDArray[np.uint16]:
        """The bits of all vectors, [E, k]: compiled code knows no float16. Further entities have none."""
        return self._vectors.view(np.uint16)
