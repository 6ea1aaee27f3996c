import numpy as np
import pytest

from deeped_ray.embeddings.validation import HeldOutLinks
from deeped_ray.knowledge.base import KnowledgeBase


def test_true_vectors_rank_held_out_links_better_than_vectors_of_others(corpus_kb: KnowledgeBase) -> None:
    links = HeldOutLinks(corpus_kb)
    vectors = corpus_kb.open("vectors").array("vectors")[links.entities]
    assert len(links) >= 1
    shuffled = np.random.default_rng(0).permutation(vectors)
    assert 0 < links.score(shuffled) <= 1
    assert links.score(vectors) >= links.score(np.zeros_like(vectors))


def test_vectors_that_distinguish_nothing_share_the_places(corpus_kb: KnowledgeBase) -> None:
    links = HeldOutLinks(corpus_kb)
    links._contexts, links._candidates = [np.ones(3, np.float32)], [np.array([1, 2, 3])]
    links.entities = np.array([1, 2, 3])
    assert links.score(np.zeros((3, 3), np.float32)) == pytest.approx(1 / 2)  # three tied places: 1 + 2/2
