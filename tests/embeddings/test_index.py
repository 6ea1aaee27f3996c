import numpy as np

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.embeddings.index import EntityIndex


def test_neighbours_are_those_of_a_full_search(corpus_kb: KnowledgeBase) -> None:
    vectors = np.asarray(corpus_kb.open("vectors").array("vectors"))
    index = EntityIndex(corpus_kb.open("index"))
    found = index.neighbors(vectors[3], count=10)
    expected = np.argsort(-(vectors @ vectors[3]))[:10]
    assert [neighbor.entity_id for neighbor in found] == expected.tolist()
    assert found[0].entity_id == 3
    assert np.isclose(found[0].similarity, 1, atol=1e-5)


def test_asking_for_more_than_there_are_gives_all(corpus_kb: KnowledgeBase) -> None:
    index = EntityIndex(corpus_kb.open("index"))
    assert len(index.neighbors(np.ones(100, dtype=np.float32), count=10_000)) == index.num_entities
