"""Word vectors learned from the dump itself: PPMI of co-occurrences, then truncated SVD."""

import logging
from collections.abc import Iterable

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from deeped_ray.corpus.pages import page_shards, read_pages
from deeped_ray.embeddings.words import Vectors, WordVectorConfig, unit_rows
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.running.progress import Progress
from deeped_ray.text import is_content_word, tokenize
from deeped_ray.types import DeepEdError, Page

LEAST_WORDS = 3
logger = logging.getLogger(__name__)


def learned_words(pages: Part, corpus_vocabulary: StringIndex, config: WordVectorConfig) -> tuple[list[int], Vectors]:
    """Corpus vocabulary ids of all content words, and vectors learned from their co-occurrences."""
    ids = [word_id for word_id in range(len(corpus_vocabulary)) if is_content_word(corpus_vocabulary[word_id])]
    rows = {corpus_vocabulary[word_id]: row for row, word_id in enumerate(ids)}
    shards = page_shards(pages)
    progress = Progress("learn word vectors", "page shards", len(shards))
    counts = scipy.sparse.csr_matrix((len(ids), len(ids)), dtype=np.float32)
    for shard in shards:
        counts = counts + count_cooccurrences(read_pages(shard), rows, window=config.ppmi_window)
        progress.advance()
    return ids, factorize(ppmi(counts, smoothing=config.ppmi_smoothing), dimension=config.dimension)


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


def ppmi(counts: scipy.sparse.csr_matrix, *, smoothing: float) -> scipy.sparse.csr_matrix:
    """max(0, log p(w, c) / (p(w) p(c)^smoothing)) on the non-zero counts."""
    total = counts.sum() or 1
    words = np.asarray(counts.sum(axis=1)).ravel() / total
    contexts = np.asarray(counts.sum(axis=0)).ravel() ** smoothing
    contexts /= contexts.sum() or 1
    cells = counts.tocoo()
    values = np.log((cells.data / total) / (words[cells.row] * contexts[cells.col]))
    positive = values > 0
    return scipy.sparse.csr_matrix((values[positive], (cells.row[positive], cells.col[positive])), shape=counts.shape)


def factorize(matrix: scipy.sparse.csr_matrix, *, dimension: int) -> Vectors:
    """Rows of U sqrt(S) of the truncated SVD, unit length."""
    num_words = matrix.shape[0]
    if num_words < LEAST_WORDS or not matrix.nnz:
        raise DeepEdError(
            f"{num_words:,} words are too few to learn vectors from. Lower corpus.min_word_count, or give --word-vectors."
        )
    if dimension >= num_words:
        logger.warning("%d words allow only %d dimensions, not %d", num_words, num_words - 1, dimension)
        dimension = num_words - 1
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    left, values, _ = scipy.sparse.linalg.svds(matrix, k=dimension, v0=start)
    order = np.argsort(-values)
    vectors = left[:, order] * np.sqrt(values[order])
    # the sign of a singular vector is arbitrary: fix it, so that the same dump gives the same vectors
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(dimension)])
    return unit_rows(vectors.astype(np.float32))
