"""A FAISS index of entity vectors: finds the entities nearest to an entity, a text, a mix, or any vector.

Reads the parts `vectors` and `corpus`, writes `index`:

    entities.faiss      the index; entities without evidence, whose vectors are zero, are not in it
    entities.rows.npy   row of the index -> entity id
    summary.json        which kind was chosen, why, and its parameters
    names.*             finds names that resemble a given name (`name_filing`)
    links.vectors.npy   vectors of entities from hyperlinks alone (`link_vectors`)

An approximate index only proposes entities. They are then ranked by their real vectors, memory-mapped from the part
`vectors`. So cosines are exact for every kind of index.
"""

import contextlib
import functools
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import GRAPH, WordCounts
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.link_vectors import write_link_vectors
from deeped_ray.embeddings.mapped_lists import read_mapped
from deeped_ray.embeddings.name_filing import write_name_index
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.running.config import JOB_FLAG
from deeped_ray.types import DeepEdError

Kind = Literal["exact", "ivf-sq", "ivf-pq"]
FORMAT = 3
"""Of the files below: a part with another is made anew."""
NEAREST_PROBES = 16
QUERIES_TO_SHARE = 8
"""From so many queries on, FAISS uses its threads."""
_AT_ONCE = 2
PROPOSED = 100
"""Entities that an approximate index proposes at least, to be ranked by their vectors."""
MIN_APPROXIMATE = 64
_FILE = "entities.faiss"
_BLOCK = 100_000
_TRAINING_POINTS = 64  # per list: more does not raise recall, and k-means is most of the building time
# FAISS maps flat codes by the first flag, lists of bytes by the second, and blocks of 4-bit codes by neither
_MAPPED = {"exact": faiss.IO_FLAG_MMAP_IFC, "ivf-sq": faiss.IO_FLAG_MMAP, "ivf-pq": 0}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """The search index over entity vectors."""

    index_kind: Annotated[
        Literal["auto", "exact", "ivf-sq", "ivf-pq"],
        "exact compares every vector, ivf-sq and ivf-pq only those in near lists. ivf-sq stores a byte per number, ivf-pq"
        " four bits per two numbers. auto: exact or ivf-pq, by size.",
        JOB_FLAG,
    ] = "auto"
    exact_up_to: Annotated[int, "auto: up to this many vectors the index is exact"] = 100_000
    lists: Annotated[int | None, "inverted lists; default: the power of two nearest to 2 * sqrt(number of vectors)"] = (
        None
    )
    probe_share: Annotated[
        float, "share of the lists that a query searches. More gives better recall and slower queries."
    ] = 0.25
    index_seed: Annotated[int, "seed of the sample from which lists and codes are learned"] = 0

    def __post_init__(self) -> None:
        if self.exact_up_to < 0 or (self.lists is not None and self.lists < 1):
            raise DeepEdError("`exact_up_to` must be at least 0 and `lists` at least 1.")
        if not 0 < self.probe_share <= 1:
            raise DeepEdError(f"`probe_share` must be above 0 and at most 1, not {self.probe_share}.")


class Choice(NamedTuple):
    """A kind of index with its parameters, and why this one."""

    kind: Kind
    reason: str
    lists: int = 1
    probes: int = 1


def choose(num_vectors: int, config: IndexConfig) -> Choice:
    if config.index_kind == "auto":
        is_small = num_vectors <= max(config.exact_up_to, MIN_APPROXIMATE)
        kind: Kind = "exact" if is_small else "ivf-pq"
        relation = "at most" if is_small else "more than"
        reason = f"{num_vectors:,} vectors are {relation} exact_up_to, {config.exact_up_to:,}"
    else:
        kind, reason = config.index_kind, "asked for by --index-kind"
    if kind == "exact":
        return Choice(kind, reason)
    if num_vectors < MIN_APPROXIMATE:
        raise DeepEdError(
            f"--index-kind {kind} learns from at least {MIN_APPROXIMATE} vectors, here are {num_vectors}. Use exact."
        )
    lists = config.lists or 2 ** round(np.log2(2 * np.sqrt(num_vectors)))
    lists = min(lists, num_vectors // 4)
    return Choice(kind, reason, lists, max(1, round(config.probe_share * lists)))


# -- making


def build_index(kb: KnowledgeBase, config: IndexConfig, *, learned: Part | None = None) -> dict[str, Any]:
    """Make the index part unless it is there already; returns what it is, and `build_seconds` if it was made now.

    `learned` is an index of nearly the same vectors, whose lists and codes are kept.
    """
    made: dict[str, Any] = {}
    parents = ["vectors", "corpus"]
    recorded = {**asdict(config), "format": FORMAT}
    if not (kb.is_current("index", config=recorded, parents=parents) and _is_sound(kb)):
        with kb.write("index", config=recorded, parents=parents) as folder:
            start = time.monotonic()
            write_index(folder, np.asarray(kb.open("vectors").array("vectors")), config, learned=learned)
            made["build_seconds"] = round(time.monotonic() - start, 1)
            corpus = kb.open("corpus")
            made["names"] = write_name_index(folder, MentionTable(corpus), Catalogue(corpus))
            write_link_vectors(folder, WordCounts(corpus, GRAPH))
    part = kb.open("index")
    return {**json.loads((part.path / "summary.json").read_text()), **made}


def _is_sound(kb: KnowledgeBase) -> bool:
    try:
        kb.open("index").check(_FILE)
    except ArtifactError:
        return False
    return True


def write_index(
    folder: Path, vectors: Float[np.ndarray, "E d"], config: IndexConfig, *, learned: Part | None = None
) -> None:
    """Fill a folder with the index of some vectors, which may be memory-mapped: they are read block by block."""
    rows = _rows_with_evidence(vectors)
    choice = choose(len(rows), config)
    _log.info("index: %s, since %s", choice.kind, choice.reason)
    known = _empty_as(learned, vectors.shape[1], choice) if learned else None
    index = known or _empty(vectors.shape[1], choice)
    if choice.kind != "exact" and known is None:
        sample = np.random.default_rng(config.index_seed).permutation(rows)[: choice.lists * _TRAINING_POINTS]
        index.train(vectors[np.sort(sample)])
    for start in range(0, len(rows), _BLOCK):
        index.add(vectors[rows[start : start + _BLOCK]])
    faiss.write_index(index, str(folder / _FILE))
    np.save(folder / "entities.rows.npy", rows.astype(np.int32))
    size = (folder / _FILE).stat().st_size
    summary = {
        **choice._asdict(),
        "entities": len(rows),
        "without_evidence": len(vectors) - len(rows),
        "learned_from": learned.id if learned and known else None,
        "bytes": size,
        "share_of_exact": round(size / max(1, len(rows) * vectors.shape[1] * 4), 4),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))


def _empty_as(learned: Part, dimension: int, choice: Choice) -> Any:
    """An index without vectors whose lists and codes are learned already; None if it would have other ones."""
    summary = json.loads((learned.path / "summary.json").read_text())
    if choice.kind == "exact" or [summary[name] for name in ("kind", "lists")] != [choice.kind, choice.lists]:
        return None
    index: Any = faiss.read_index(str(learned.path / _FILE))
    index.reset()
    index.nprobe = choice.probes
    return index if index.d == dimension else None


def _rows_with_evidence(vectors: Float[np.ndarray, "E d"]) -> Int[np.ndarray, " rows"]:
    blocks = (vectors[start : start + _BLOCK] for start in range(0, len(vectors), _BLOCK))
    rows = [number * _BLOCK + np.flatnonzero(block.any(axis=1)) for number, block in enumerate(blocks)]
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def _empty(dimension: int, choice: Choice) -> Any:
    if choice.kind == "exact":
        return faiss.IndexFlatIP(dimension)
    # four bits for every two numbers, if they come in twos
    code = "SQ8" if choice.kind == "ivf-sq" else f"PQ{dimension // 2 if dimension % 2 == 0 else dimension}x4fs"
    index: Any = faiss.index_factory(dimension, f"IVF{choice.lists},{code}", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = 10
    index.cp.spherical = True  # vectors have unit length
    index.cp.min_points_per_centroid = 1  # or faiss warns of small knowledge bases on stderr
    index.nprobe = choice.probes
    return index


# -- searching


class Neighbor(NamedTuple):
    entity_id: int
    similarity: float
    """Cosine."""


@functools.lru_cache(maxsize=2)  # look-ups and linker of a server share it
def _read(path: str, kind: Kind, checksum: str | None) -> Any:
    """An index without a checksum is in no part: it is read for itself."""
    if kind == "ivf-pq" and checksum:
        return read_mapped(Path(path), checksum)
    return faiss.read_index(path, _MAPPED[kind])


@contextlib.contextmanager
def _threads_for(num_queries: int) -> Iterator[None]:
    """One for a few queries: FAISS's others have nothing to do, and burn a core while they wait for the next call."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1 if num_queries < QUERIES_TO_SHARE else before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class EntityIndex:
    """Answers with entities and cosines, nearest first; never with an entity that has no evidence."""

    def __init__(self, folder: Path, vectors: Float[np.ndarray, "E d"], *, checksum: str | None = None) -> None:
        """With the checksum of its file, the processes of a node share its codes, whatever its kind."""
        summary = json.loads((folder / "summary.json").read_text())
        self.kind: Kind = summary["kind"]
        self._index = _read(str(folder / _FILE), self.kind, checksum)
        self._rows: npt.NDArray[np.int32] = np.asarray(np.load(folder / "entities.rows.npy", mmap_mode="r"))
        self._vectors = vectors
        self._fewer: Any = None
        if self.kind != "exact":
            self._fewer = faiss.SearchParametersIVF(nprobe=NEAREST_PROBES)  # type: ignore[call-arg]

    @classmethod
    def open(cls, kb: KnowledgeBase) -> "EntityIndex":
        part = kb.open("index")
        part.check(_FILE)  # faiss trusts what it reads
        vectors = np.asarray(kb.open("vectors").array("vectors"))
        return cls(part.path, vectors, checksum=part.record["files"][_FILE]["sha256"])

    @functools.cached_property
    def num_entities(self) -> int:
        """Entities that can be found."""
        return int(self._index.ntotal)

    def nearest(self, queries: Float[np.ndarray, "B d"], *, count: int) -> Int[np.ndarray, "B n"]:
        """Entities near each vector, for a fraction of the cost of `search`: fewer lists are looked through.

        -1 where there is none. Vectors are searched for two by two: what is asked beside them changes no answer.
        """
        count = max(1, min(count, self.num_entities))
        found = np.empty((len(queries), count), np.int64)
        with _threads_for(_AT_ONCE):
            for start in range(0, len(queries), _AT_ONCE):
                some = slice(start, start + _AT_ONCE)
                self._index.search(queries[some], count, params=self._fewer, I=found[some])
        is_there = found >= 0
        found[is_there] = self._rows[found[is_there]]
        return found

    def neighbors(self, vector: Float[np.ndarray, " d"], *, count: int, without: Sequence[int] = ()) -> list[Neighbor]:
        """The entities nearest to a vector of any length, some left out; none for a vector of zeros."""
        return self.search(vector[None], count=count, without=[without])[0]

    def search(
        self, queries: Float[np.ndarray, "B d"], *, count: int, without: Sequence[Sequence[int]] | None = None
    ) -> list[list[Neighbor]]:
        """`neighbors` for many vectors at once."""
        left_out = without or [()] * len(queries)
        wanted = count + max(map(len, left_out), default=0)
        proposed = wanted if self.kind == "exact" else max(PROPOSED, 10 * wanted)
        norms = np.linalg.norm(queries, axis=1, keepdims=True)
        units = np.ascontiguousarray(queries / np.where(norms > 0, norms, 1), dtype=np.float32)
        with _threads_for(len(units)):
            similarities, rows = self._index.search(units, max(1, min(proposed, self.num_entities)))
        found = []
        for unit, norm, row, similarity, left in zip(units, norms, rows, similarities, left_out, strict=True):
            is_row = (row >= 0) & (norm > 0)
            entities = self._rows[row[is_row]]
            cosines = similarity[is_row] if self.kind == "exact" else self._vectors[entities] @ unit
            order = np.lexsort((entities, -cosines))[:wanted]
            pairs = zip(entities[order].tolist(), cosines[order].tolist(), strict=True)
            found.append([Neighbor(*pair) for pair in pairs if pair[0] not in left][:count])
        return found
