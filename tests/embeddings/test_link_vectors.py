import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.corpus.cooccurrence import GRAPH, WordCounts
from deeped_ray.embeddings import link_vectors as link_vectors_module
from deeped_ray.embeddings.link_vectors import Links, LinkVectors, write_link_vectors
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.csr import write_csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location


def graph_of(folder: Path, pages: dict[int, list[int]], *, entities: int) -> WordCounts:
    """Page -> entities that it links to, once each."""
    linked = [sorted(pages.get(entity, [])) for entity in range(entities)]
    words = np.array([each for row in linked for each in row], np.int32)
    lengths = np.array([*map(len, linked)], np.int64)
    write_csr(folder / GRAPH, lengths, words=words, counts=np.ones(len(words), np.int32))
    return WordCounts(Part("corpus", "", Location(folder), {}), GRAPH)


def vectors_of(graph: WordCounts, folder: Path, **options: int) -> np.ndarray:
    write_link_vectors(folder, graph, **options)
    vectors: np.ndarray = np.load(folder / "links.vectors.npy").astype(np.float32)
    return vectors


def cosines(graph: WordCounts, folder: Path, **options: int) -> np.ndarray:
    vectors = vectors_of(graph, folder, **options)
    products: np.ndarray = vectors @ vectors.T
    return products


def test_vectors_are_the_singular_vectors_of_the_links(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pages = {page: rng.choice(40, 12, replace=False).tolist() for page in range(15)}
    graph = graph_of(tmp_path, pages, entities=40)
    links = np.concatenate([block.toarray() for block in Links.write(graph, tmp_path).blocks()])
    assert links.shape == (40, 15)
    left, values, _ = np.linalg.svd(links, full_matrices=False)
    exact = left[:, :5] * values[:5]
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    assert cosines(graph, tmp_path, dimension=5) == pytest.approx(exact @ exact.T, abs=0.01)


def test_entities_of_the_same_pages_are_near_and_those_of_others_are_not(tmp_path: Path) -> None:
    cricket, rugby = [4, 5, 6], [7, 8, 9]
    graph = graph_of(tmp_path, {0: cricket, 1: cricket, 2: rugby, 3: rugby}, entities=10)
    near = cosines(graph, tmp_path, dimension=2)
    assert near[4, 5] == pytest.approx(1, abs=0.01)
    assert abs(near[4, 7]) < 0.01


def test_an_entity_without_links_has_no_vector_and_one_beyond_the_corpus_neither(corpus_kb: KnowledgeBase) -> None:
    vectors = LinkVectors(corpus_kb.open("index")).halves.view(np.float16).astype(np.float32)
    linked = np.unique(WordCounts(corpus_kb.open("corpus"), GRAPH).words)
    assert np.linalg.norm(vectors[linked[:50]], axis=1) == pytest.approx(1, abs=0.01)


def test_many_pages_have_the_vectors_that_few_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = graph_of(tmp_path, {page: rng.choice(60, 9, replace=False).tolist() for page in range(50)}, entities=60)
    expected = cosines(graph, tmp_path, dimension=5)
    monkeypatch.setattr(link_vectors_module, "_BLOCK", 7)
    monkeypatch.setattr(link_vectors_module, "_MAX_CELLS", 40)
    assert cosines(graph, tmp_path, dimension=5) == pytest.approx(expected, abs=0.01)


def test_a_wiki_without_links_has_vectors_of_no_length(tmp_path: Path) -> None:
    assert vectors_of(graph_of(tmp_path, {}, entities=3), tmp_path).shape == (3, 0)


def test_neither_the_basis_nor_the_links_are_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_pages, width = 4000, link_vectors_module.DIMENSION + link_vectors_module.SPARE_DIMENSIONS
    rng = np.random.default_rng(0)
    pages = {page: rng.choice(num_pages, 9, replace=False).tolist() for page in range(num_pages)}
    graph = graph_of(tmp_path, pages, entities=num_pages)
    write_link_vectors(tmp_path, graph)  # scipy is imported
    monkeypatch.setattr(link_vectors_module, "_BLOCK", 250)
    tracemalloc.start()
    write_link_vectors(tmp_path, graph)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < num_pages * width * 4 / 2
