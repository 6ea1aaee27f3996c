import numpy as np
import scipy.sparse

from deeped_ray.embeddings.learned_words import count_cooccurrences, factorize, ppmi
from deeped_ray.embeddings.words import Words, ranked_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import Page


def test_cooccurrences_weigh_near_words_more() -> None:
    counts = count_cooccurrences([Page(1, "", "red green blue")], {"red": 0, "green": 1, "blue": 2}, window=2)
    np.testing.assert_allclose(counts.toarray(), [[0.0, 1.0, 0.5], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])


def test_ppmi_of_a_worked_example() -> None:
    counts = scipy.sparse.csr_matrix(np.array([[0.0, 3.0], [3.0, 2.0]]))
    # p(0,1) = 3/8, p(0) = 3/8, p(1) = 5/8: log(3/8 / (3/8 * 5/8)) = log(8/5); p(1,1): log(2/8 / (5/8)^2) < 0
    np.testing.assert_allclose(ppmi(counts, smoothing=1.0).toarray(), [[0, np.log(8 / 5)], [np.log(8 / 5), 0]])


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
