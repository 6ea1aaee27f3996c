"""Word vectors learned from the dump itself: PPMI of co-occurrences, then truncated SVD.

    count pairs    one task per shard of pages: weights of pairs of words, spilled by the first word
    combine pairs  where there is much: files of several tasks become one (`corpus.shuffle`)
    add up pairs   one task per partition: rows of the matrix of counts
    (the driver)   PPMI of these, and its factors

Both matrices stay on disk. The driver holds 4 bytes for each word, dimension, and two more for each: what the SVD works on.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
import scipy.sparse.linalg

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.pages import page_shards, read_pages
from deeped_ray.corpus.shuffle import Partition, Shuffle, combined, spilled_by
from deeped_ray.embeddings.words import Vectors, WordVectorConfig, unit_rows
from deeped_ray.knowledge.csr import join_csr, write_csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.storage.arrays import read_array
from deeped_ray.storage.cache import temporary_folder
from deeped_ray.storage.location import Location
from deeped_ray.text import is_content_word, tokenize
from deeped_ray.types import DeepEdError, Page

LEAST_WORDS = 3
_PAIRS = "pairs"
_COLUMNS = ("words", "weights")
_ROWS = 2**14
"""Of a matrix, in memory."""
logger = logging.getLogger(__name__)


def learned_words(
    pages: Part, corpus: Part, config: WordVectorConfig, work: Location, run: Callable[..., Any]
) -> tuple[list[int], Vectors]:
    """Corpus vocabulary ids of all content words, and vectors learned from their co-occurrences.

    `run` is `tasks.run` in the folder `work`.
    """
    ids = _content_words(corpus.path)
    num_words = _enough(len(ids))
    shuffle = Shuffle(work, CorpusConfig().gathered_bytes)
    counting = (corpus, config.ppmi_window, shuffle)
    counted = run("count pairs", count_shard, page_shards(pages), *counting, unit="shards of pages")
    plan = shuffle.plan(_PAIRS, spilled_by(counted.results), num_keys=num_words)
    partitions = combined(run, "combine pairs", shuffle, [plan])
    added = run("add up pairs", add_up, range(len(partitions)), partitions, shuffle, unit="partitions")
    with (work / "pieces").fetched() as there, temporary_folder(work.path) as folder:
        join_csr([there / name for found in added.results for name in found["pieces"]], folder / "counts", _COLUMNS)
        matrix = ppmi(_mapped(folder / "counts", num_words), folder, smoothing=config.ppmi_smoothing)
        return [*ids.values()], factorize(matrix, dimension=config.dimension)


def _content_words(folder: Path) -> dict[str, int]:
    """Of the corpus vocabulary, with their ids."""
    vocabulary = StringIndex(folder, "vocabulary")
    words = vocabulary.take(np.arange(len(vocabulary)))
    return {word: word_id for word_id, word in enumerate(words) if is_content_word(word)}


@functools.lru_cache(maxsize=1)  # a worker counts many shards
def _rows_of(folder: Path) -> dict[str, int]:
    return {word: row for row, word in enumerate(_content_words(folder))}


def _mapped(prefix: Path, num_words: int) -> scipy.sparse.csr_matrix:
    columns, weights, offsets = (read_array(f"{prefix}.{name}.npy") for name in (*_COLUMNS, "offsets"))
    return scipy.sparse.csr_matrix((weights, columns, offsets), shape=(num_words, num_words), copy=False)


# -- what tasks do


def count_shard(shard: Location, corpus: Part, window: int, shuffle: Shuffle) -> dict[str, Any]:
    cells = count_cooccurrences(read_pages(shard), _rows_of(corpus.path), window=window).tocoo()
    rows = {"row": cells.row.astype(np.int64), "column": cells.col.astype(np.int32), "weight": cells.data}
    table = pa.table(rows)
    return {"spilled": shuffle.spill(f"{_PAIRS}-{shard.stem}", table, num_keys=cells.shape[0])}


def add_up(place: int, partitions: Sequence[Partition], shuffle: Shuffle) -> dict[str, Any]:
    """Rows of the matrix, in pieces."""
    partition, pieces = partitions[place], list[str]()
    with (shuffle.folder / "pieces").filling() as folder:
        for each in shuffle.slices(partition):
            rows, columns, weights = (column.to_numpy() for column in each.rows.columns)
            keys, inverse = np.unique((rows << 32) | columns, return_inverse=True)
            sums = np.zeros(len(keys), np.float32)
            np.add.at(sums, inverse, weights)  # shard by shard: the order decides about the last digits
            pieces.append(f"{partition.name}.{len(pieces)}")
            lengths = np.bincount((keys >> 32) - each.first, minlength=len(each.keys))
            write_csr(folder / pieces[-1], lengths, words=(keys & 0xFFFFFFFF).astype(np.int32), weights=sums)
    return {"pieces": pieces}


def count_cooccurrences(pages: Iterable[Page], word_ids: dict[str, int], *, window: int) -> scipy.sparse.csr_matrix:
    """How often two vocabulary words stand within `window` vocabulary words of each other, nearer ones counting more."""
    lefts, rights, weights = [], [], []
    for page in pages:
        ids = np.array(
            [word_ids[token.word] for token in tokenize(page.text) if token.word in word_ids], dtype=np.int32
        )
        for distance in range(1, min(window, len(ids) - 1) + 1):
            lefts.append(ids[:-distance])
            rights.append(ids[distance:])
            weights.append(np.full(len(ids) - distance, 1 - (distance - 1) / window, dtype=np.float32))
    shape = (len(word_ids), len(word_ids))
    if not lefts:
        return scipy.sparse.csr_matrix(shape, dtype=np.float32)
    counts = scipy.sparse.csr_matrix(
        (np.concatenate(weights), (np.concatenate(lefts), np.concatenate(rights))), shape=shape
    )
    return counts + counts.T


# -- what the driver does


def ppmi(counts: scipy.sparse.csr_matrix, folder: Path, *, smoothing: float) -> scipy.sparse.csr_matrix:
    """max(0, log p(w, c) / (p(w) p(c)^smoothing)) on the non-zero counts; mapped from files in the folder."""
    total = counts.sum() or 1
    words = np.asarray(counts.sum(axis=1)).ravel() / total
    contexts = np.asarray(counts.sum(axis=0)).ravel() ** smoothing
    contexts /= contexts.sum() or 1
    pieces = list[Path]()
    for start in range(0, counts.shape[0], _ROWS):
        cells = counts[start : start + _ROWS].tocoo()
        values = np.log((cells.data / total) / (words[start + cells.row] * contexts[cells.col]))
        positive = values > 0
        lengths = np.bincount(cells.row[positive], minlength=cells.shape[0])
        pieces.append(folder / f"ppmi-{len(pieces):06d}")
        write_csr(pieces[-1], lengths, words=cells.col[positive], weights=values[positive])
    join_csr(pieces, folder / "ppmi", _COLUMNS)
    return _mapped(folder / "ppmi", counts.shape[0])


def factorize(matrix: scipy.sparse.csr_matrix, *, dimension: int) -> Vectors:
    """Rows of U sqrt(S) of the truncated SVD, unit length."""
    num_words = _enough(matrix.shape[0] if matrix.nnz else 0)
    if dimension >= num_words:
        logger.warning("%d words allow only %d dimensions, not %d", num_words, num_words - 1, dimension)
        dimension = num_words - 1
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    transposed = matrix.T  # given as a matrix, svds would copy it
    operator = scipy.sparse.linalg.LinearOperator(
        matrix.shape, matrix.dot, transposed.dot, matrix.dot, matrix.dtype, transposed.dot
    )
    left, values, _ = scipy.sparse.linalg.svds(operator, k=dimension, v0=start)
    order = np.argsort(-values)
    vectors = left[:, order] * np.sqrt(values[order])
    # the sign of a singular vector is arbitrary: fix it, so that the same dump gives the same vectors
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(dimension)])
    return unit_rows(vectors.astype(np.float32))


def _enough(num_words: int) -> int:
    if num_words < LEAST_WORDS:
        raise DeepEdError(
            f"{num_words:,} words are too few to learn vectors from. Lower corpus.min_word_count, or give --word-vectors."
        )
    return num_words
