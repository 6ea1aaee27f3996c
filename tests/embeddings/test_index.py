import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from deeped_ray.embeddings.index import EntityIndex, IndexConfig, Kind, build_index, choose, write_index
from deeped_ray.embeddings.recall import RecallConfig, exact_neighbors, index_recall, recall_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.conftest import copy_of

KINDS: list[Kind] = ["exact", "ivf-sq", "ivf-pq"]
Floats = npt.NDArray[np.float32]


def make_vectors(*, num: int = 3_000, d: int = 20, seed: int = 0) -> Floats:
    """Unit vectors around 100 centres; every tenth is zero."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((100, d))
    vectors = centres[rng.integers(100, size=num)] + 0.4 * rng.standard_normal((num, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[::10] = 0
    return vectors.astype(np.float32)


def make_index(folder: Path, vectors: Floats, kind: Kind) -> EntityIndex:
    folder.mkdir(exist_ok=True)
    write_index(folder, vectors, IndexConfig(index_kind=kind))
    return EntityIndex(folder, vectors)


def test_neighbours_are_those_of_a_full_search(corpus_kb: KnowledgeBase) -> None:
    vectors = np.asarray(corpus_kb.open("vectors").array("vectors"))
    found = EntityIndex.open(corpus_kb).neighbors(vectors[3], count=10)
    expected = np.argsort(-(vectors @ vectors[3]))[:10]
    assert [neighbor.entity_id for neighbor in found] == expected.tolist()
    assert found[0].entity_id == 3
    assert np.isclose(found[0].similarity, 1, atol=1e-5)


def test_asking_for_more_than_there_are_gives_all(corpus_kb: KnowledgeBase) -> None:
    index = EntityIndex.open(corpus_kb)
    assert len(index.neighbors(np.ones(100, dtype=np.float32), count=10_000)) == index.num_entities


@pytest.mark.parametrize("kind", KINDS)
def test_nearly_all_true_neighbours_are_found(tmp_path: Path, kind: Kind) -> None:
    vectors = make_vectors()
    figures = recall_of(make_index(tmp_path, vectors, kind), vectors, np.arange(1, 400, 3)[::2] // 10 * 10 + 1)
    assert figures["recall_at_10"] >= (1 if kind == "exact" else 0.97)


@pytest.mark.parametrize("kind", KINDS)
def test_entities_without_evidence_are_never_returned(tmp_path: Path, kind: Kind) -> None:
    vectors = make_vectors(num=300)
    index = make_index(tmp_path, vectors, kind)
    found = index.search(np.concatenate([vectors[1:9], -vectors[1:9]]), count=300)
    assert index.num_entities == 270
    assert all(each.entity_id % 10 for neighbors in found for each in neighbors)


@pytest.mark.parametrize("kind", KINDS)
def test_cosines_are_exact_and_fall(tmp_path: Path, kind: Kind) -> None:
    vectors = make_vectors()
    found = make_index(tmp_path, vectors, kind).neighbors(3 * vectors[5], count=20)
    cosines = [each.similarity for each in found]
    assert cosines == sorted(cosines, reverse=True)
    assert np.allclose(cosines, [vectors[each.entity_id] @ vectors[5] for each in found], atol=1e-5)


def test_a_vector_of_zeros_has_no_neighbours(tmp_path: Path) -> None:
    index = make_index(tmp_path, make_vectors(num=300), "exact")
    assert index.neighbors(np.zeros(20, np.float32), count=5) == []


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_of_an_entity_can_leave_it_out(tmp_path: Path, kind: Kind) -> None:
    vectors = make_vectors()
    index = make_index(tmp_path, vectors, kind)
    found = index.neighbors(vectors[1], count=10, without=[1])
    assert len(found) == 10
    assert 1 not in [each.entity_id for each in found]


def test_batches_answer_as_single_queries_do(tmp_path: Path) -> None:
    vectors = make_vectors()
    index = make_index(tmp_path, vectors, "ivf-pq")
    single = [index.neighbors(vector, count=5) for vector in vectors[1:9]]
    for alone, batched in zip(single, index.search(vectors[1:9], count=5), strict=True):
        assert [each.entity_id for each in alone] == [each.entity_id for each in batched]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_vectors_give_the_same_file(tmp_path: Path, kind: Kind) -> None:
    for name in ("a", "b"):
        make_index(tmp_path / name, make_vectors(), kind)
    assert (tmp_path / "a/entities.faiss").read_bytes() == (tmp_path / "b/entities.faiss").read_bytes()


def is_mapped(path: Path) -> bool:
    return str(path.resolve()) in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(("kind", "expected"), [("exact", True), ("ivf-sq", True), ("ivf-pq", False)])
def test_what_faiss_can_map_is_mapped(tmp_path: Path, kind: Kind, expected: bool) -> None:
    index = make_index(tmp_path, make_vectors(), kind)
    assert is_mapped(tmp_path / "entities.faiss") is expected
    assert index.num_entities == 2_700


def test_size_decides_and_says_so() -> None:
    small, large = (choose(num, IndexConfig()) for num in (100_000, 100_001))
    assert (small.kind, large.kind) == ("exact", "ivf-pq")
    assert "100,001 vectors are more than exact_up_to, 100,000" in large.reason
    assert (choose(270_000, IndexConfig()).lists, choose(270_000, IndexConfig()).probes) == (1024, 256)


def test_too_few_vectors_to_learn_from_are_refused() -> None:
    with pytest.raises(DeepEdError, match="at least 64 vectors, here are 63"):
        choose(63, IndexConfig(index_kind="ivf-pq"))


def test_exact_search_by_blocks_knows_no_zeros() -> None:
    vectors = make_vectors(num=200)
    cosines, found = exact_neighbors(vectors, vectors[1:4], count=200)
    assert np.all((found % 10 > 0) | (found == -1))
    assert np.isclose(cosines[0, 0], 1, atol=1e-5)


def test_the_part_says_what_it_is_and_how_good(corpus_kb: KnowledgeBase) -> None:
    summary = build_index(corpus_kb, IndexConfig())
    figures = index_recall(corpus_kb, RecallConfig(recall_queries=20))
    assert summary["kind"] == "exact"
    assert "exact_up_to" in summary["reason"]
    assert figures["recall_at_10"] == 1.0
    assert json.loads(json.dumps(figures))["queries"] == 20


def test_a_damaged_index_is_refused_and_made_again(
    corpus_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeped_ray.knowledge.parts.HASH_ON_OPEN_BYTES", 0)  # as for files of gigabytes
    kb = copy_of(corpus_kb, tmp_path / "kb")
    path = kb.open("index").path / "entities.faiss"
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=r"does not match its checksum\. Run jobs/build_index\.py"):
        EntityIndex.open(kb)
    build_index(kb, IndexConfig())
    assert path.read_bytes() == sound


@pytest.mark.parametrize("kind", ["ivf-sq", "ivf-pq"])
def test_lists_and_codes_are_kept_for_nearly_the_same_vectors(tmp_path: Path, kind: Kind) -> None:
    vectors, config = make_vectors(), IndexConfig(index_kind=kind)
    make_index(tmp_path / "first", vectors, kind)
    learned = Part("index", "0" * 16, Location(tmp_path / "first"), {})
    changed = vectors.copy()
    changed[5] = vectors[7]
    for folder, others in (("same", vectors), ("changed", changed)):
        (tmp_path / folder).mkdir()
        write_index(tmp_path / folder, others, config, learned=learned)
    assert (tmp_path / "same" / "entities.faiss").read_bytes() == (tmp_path / "first" / "entities.faiss").read_bytes()
    found = EntityIndex(tmp_path / "changed", changed).neighbors(vectors[7], count=2)
    assert {each.entity_id for each in found} == {5, 7}
    assert json.loads((tmp_path / "changed" / "summary.json").read_text())["learned_from"] == learned.id
    write_index(tmp_path / "same", make_vectors(num=12_000), config, learned=learned)
    assert json.loads((tmp_path / "same" / "summary.json").read_text())["learned_from"] is None
