from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from deeped_ray.corpus.pages import page_shards, read_pages
from deeped_ray.embeddings import learned_words
from deeped_ray.embeddings.learned_words import count_cooccurrences, factorize, ppmi
from deeped_ray.embeddings.words import Words, WordVectorConfig, ranked_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.storage.location import Location
from deeped_ray.types import Page
from tests.conftest import run_here


def test_cooccurrences_weigh_near_words_more() -> None:
    counts = count_cooccurrences([Page(1, "", "red green blue")], {"red": 0, "green": 1, "blue": 2}, window=2)
    np.testing.assert_allclose(counts.toarray(), [[0.0, 1.0, 0.5], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])


@pytest.mark.parametrize("max_bytes", [2**27, 200_000])
def test_counts_are_those_of_all_shards_one_after_the_other(
    corpus_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    pages, corpus = corpus_kb.open("pages"), corpus_kb.open("corpus")
    found: list[Any] = []
    monkeypatch.setattr("deeped_ray.corpus.config.CorpusConfig.gathered_bytes", max_bytes)
    monkeypatch.setattr(learned_words, "ppmi", lambda counts, *_, **__: found.append(counts.copy()))
    monkeypatch.setattr(learned_words, "factorize", lambda *_, **__: np.zeros((1, 1), np.float32))
    config = WordVectorConfig(ppmi_window=2)
    ids, _ = learned_words.learned_words(pages, corpus, config, Location(tmp_path), run_here)
    rows = learned_words._rows_of(corpus.path)
    expected = sum(count_cooccurrences(read_pages(shard), rows, window=2) for shard in page_shards(pages))
    assert (found[0] != expected).nnz == 0
    assert len(ids) == len(rows) == found[0].shape[0]


@pytest.mark.parametrize("rows_at_once", [1, 100])
def test_ppmi_of_a_worked_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    monkeypatch.setattr(learned_words, "_ROWS", rows_at_once)
    counts = scipy.sparse.csr_matrix(np.array([[0.0, 3.0], [3.0, 2.0]]))
    # p(0,1) = 3/8, p(0) = 3/8, p(1) = 5/8: log(3/8 / (3/8 * 5/8)) = log(8/5); p(1,1): log(2/8 / (5/8)^2) < 0
    np.testing.assert_allclose(
        ppmi(counts, tmp_path, smoothing=1.0).toarray(), [[0, np.log(8 / 5)], [np.log(8 / 5), 0]]
    )


def test_factors_reproduce_a_matrix_of_low_rank() -> None:
    rng = np.random.default_rng(0)
    half = rng.random((12, 3))
    vectors = factorize(scipy.sparse.csr_matrix(half @ half.T), dimension=3)
    cosine = half @ half.T / np.outer(np.linalg.norm(half, axis=1), np.linalg.norm(half, axis=1))
    np.testing.assert_allclose(vectors @ vectors.T, cosine, atol=1e-5)


def test_learned_vectors_put_words_of_one_topic_together(corpus_kb: KnowledgeBase) -> None:
    words = Words(corpus_kb.open("words"))
    rugby, row = words.find("rugby"), words.find("guitar")
    assert rugby is not None
    assert row is not None
    neighbours = [word for word, _ in ranked_words(words, words.vectors[row], count=12)]
    assert {"drums", "bass", "band", "album"} & set(neighbours)
    np.testing.assert_allclose(np.linalg.norm(words.vectors, axis=1), 1, atol=1e-5)
