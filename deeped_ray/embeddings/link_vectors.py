"""Vectors of entities from hyperlinks alone: two entities are near each other if the same pages link to them.

    X[p, e]   how often page p links to entity e, damped, times the rarity of e; rows have unit length
    l_e       row e of V S, where X = U S V' is cut to the largest singular values; then of unit length

A page counts as linking to itself. Entity vectors come from words (section 3). These vectors know nothing of words, so the
two are independent evidence of what belongs together. They are found by subspace iteration, which reads X a few times. X
and the basis lie in files beside the result, mapped; blocks of them and a few numbers per entity are held in memory.

    links.vectors.npy     [E, k], float16; zeros for an entity that no page links to
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrays import writing_array
from deeped_ray.storage.cache import temporary_folder

DIMENSION = 64
"""128 numbers, or whitened ones, are no better evidence (docs/experiments.md)."""
SPARE_DIMENSIONS = 16
ITERATIONS = 3
LEAST_RARITY = 0.5
_BLOCK = 100_000
_MAX_CELLS = 2**21
"""Links to the entities of a block, at most, unless there are more to a single one."""
_CELL = np.dtype([("entity", np.int32), ("page", np.int32), ("weight", np.float32)])


def write_link_vectors(folder: Path, graph: WordCounts, *, dimension: int = DIMENSION, seed: int = 0) -> None:
    """From who links to whom: `graph.row(entity)` has the entities that its page links to."""
    with temporary_folder(folder) as aside:
        links = Links.write(graph, aside)
        k = min(dimension, links.num_pages)
        axes = _axes(links, aside, min(k + SPARE_DIMENSIONS, links.num_pages), np.random.default_rng(seed))
        gram = sum((_gram(block @ axes) for block in links.blocks()), np.zeros((axes.shape[1],) * 2))
        _, directions = np.linalg.eigh(gram)  # smallest first
        largest = directions[:, ::-1][:, :k]
        cut = _mapped(aside / "cut.npy", (links.num_pages, k))
        for rows in _slices(links.num_pages):
            cut[rows] = axes[rows] @ largest
        with writing_array(folder / "links.vectors.npy", np.float16, (len(graph), k)) as sink:
            for block in links.blocks():
                _units(block @ cut).astype(np.float16).tofile(sink)


# -- who links to whom, weighted


@dataclass(frozen=True)
class Links:
    """X', [E, pages that link], as files: a sparse matrix for each block of entities."""

    folder: Path
    borders: list[int]
    """First entities of the blocks, and the end of the last."""
    num_pages: int

    @classmethod
    def write(cls, graph: WordCounts, folder: Path) -> "Links":
        pages = np.flatnonzero(np.diff(graph.offsets)).astype(np.int32)
        num_linking = _num_pages_linking(graph, pages)
        rarity = np.log((len(pages) + 1) / (num_linking + 0.5)).clip(LEAST_RARITY).astype(np.float32)
        links = cls(folder, _borders(num_linking), len(pages))
        for rows in _slices(len(pages)):
            cells = _weighted(_times(graph, pages[rows]), rarity, rows.start)
            bounds = np.searchsorted(cells["entity"], links.borders)
            for start, first, last in zip(links.borders, bounds, bounds[1:], strict=False):
                with open(links._file(start), "ab") as sink:
                    cells[first:last].tofile(sink)
        return links

    def blocks(self) -> Iterator[Any]:
        """Rows of X', one lot of entities after the other."""
        from scipy import sparse  # readers do without it

        for start, end in itertools.pairwise(self.borders):
            cells = np.fromfile(self._file(start), _CELL) if self.num_pages else np.zeros(0, _CELL)
            place = (cells["entity"] - start, cells["page"])
            yield sparse.csr_matrix((cells["weight"], place), shape=(end - start, self.num_pages))

    def _file(self, start: int) -> Path:
        return self.folder / f"links.{start:010d}.cells"


def _times(graph: WordCounts, pages: npt.NDArray[np.int32]) -> Any:
    """[pages, E]: how often they link to whom, damped."""
    from scipy import sparse

    starts, ends = graph.offsets[pages], graph.offsets[pages + 1]
    first, last = (int(starts[0]), int(ends[-1])) if len(pages) else (0, 0)  # pages in between have no links
    numbers = np.arange(len(pages), dtype=np.int32)
    page = np.append(np.repeat(numbers, ends - starts), numbers)
    entity = np.append(np.asarray(graph.words[first:last], np.int32), pages)
    times = (1 + np.log(graph.counts[first:last])).astype(np.float32)
    times = np.append(times, np.ones(len(pages), np.float32))
    return sparse.csr_matrix((times, (page, entity)), shape=(len(pages), len(graph)))


def _num_pages_linking(graph: WordCounts, pages: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    found = np.zeros(len(graph), np.int64)
    for rows in _slices(len(pages)):
        found += np.bincount(_times(graph, pages[rows]).indices, minlength=len(graph))
    return found


def _borders(num_linking: npt.NDArray[np.int64]) -> list[int]:
    """Of blocks that have neither too many entities nor too many links."""
    ends, borders = np.cumsum(num_linking), [0]
    while borders[-1] < len(ends):
        start = borders[-1]
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + _MAX_CELLS, side="right"))
        borders.append(min(max(fitting, start + 1), start + _BLOCK, len(ends)))
    return borders


def _weighted(times: Any, rarity: npt.NDArray[np.float32], first: int) -> npt.NDArray[Any]:
    """The cells of some pages, which have unit length then, in the order of the entities."""
    times.data *= rarity[times.indices]
    lengths = np.sqrt(times.multiply(times) @ np.ones(times.shape[1], np.float32))
    times.data *= np.repeat(1 / lengths, np.diff(times.indptr))
    found = times.tocsc().tocoo()
    cells = np.empty(found.nnz, _CELL)
    cells["entity"], cells["page"], cells["weight"] = found.col, found.row + first, found.data
    return cells


# -- subspace iteration


def _axes(links: Links, folder: Path, width: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """An orthonormal basis, nearly, of the directions in which pages differ most: [pages, width]."""
    axes, turned = (_mapped(folder / f"{name}.npy", (links.num_pages, width)) for name in ("axes", "turned"))
    for rows in _slices(links.num_pages):
        axes[rows] = rng.standard_normal(axes[rows].shape)
    for _ in range(ITERATIONS):
        for rows in _slices(links.num_pages):
            turned[rows] = 0
        for block in links.blocks():
            _add_turned(turned, block.tocsc(), block @ axes)
        axes, turned = orthonormal(turned), axes
    return axes


def _add_turned(turned: npt.NDArray[np.float32], block: Any, images: npt.NDArray[np.float32]) -> None:
    """turned += block' images, some pages at a time, and of these only those that link to the block's entities."""
    for rows in _slices(len(turned)):
        part = block[:, rows].T
        linking = np.flatnonzero(np.diff(part.indptr))
        turned[rows.start + linking] += part[linking] @ images


def orthonormal(columns: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """An orthonormal basis of the columns, in their place."""
    if len(columns) <= _BLOCK:
        columns[:] = np.linalg.qr(columns)[0]
        return columns
    # Householder's QR holds ten times the columns, and Cholesky's nothing beside them: Q = A inverse(R)
    gram = sum((_gram(columns[rows]) for rows in _slices(len(columns))), np.zeros((columns.shape[1],) * 2))
    inverse = np.linalg.inv(np.linalg.cholesky(gram).T)
    for rows in _slices(len(columns)):
        columns[rows] = columns[rows] @ inverse
    return columns


def _mapped(file: Path, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Numbers in a file: the system writes them back when memory is short."""
    if not np.prod(shape):  # nothing that could be mapped
        return np.zeros(shape, np.float32)
    return np.asarray(np.lib.format.open_memmap(file, "w+", np.dtype(np.float32), shape))


def _slices(size: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK))


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
