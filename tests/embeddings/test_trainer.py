"""Sharded embedding on a real Ray: same bytes however it is cut or interrupted."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings import shards as shard_files
from deeped_ray.embeddings import trainer
from deeped_ray.embeddings.config import EmbeddingConfig, Methods, ReferenceConfig, ShardConfig, SubsetConfig
from deeped_ray.embeddings.evidence import NOT_TRAINED, PAGE_AND_LINKS, EvidenceReader
from deeped_ray.embeddings.link_phase import LINK_STEPS, choose_link_steps
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.unseen import embed_text
from deeped_ray.embeddings.validation import HeldOutLinks
from deeped_ray.embeddings.words import Words, WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running import tasks
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

REFERENCE = Methods(
    embedding=EmbeddingConfig(method="reference"), reference=ReferenceConfig(page_steps=20, link_steps=5)
)
NEW = SubsetConfig(only_new=True)


@pytest.fixture
def kb(corpus_kb: KnowledgeBase, tmp_path: Path) -> KnowledgeBase:
    shutil.copytree(corpus_kb.root, tmp_path / "kb")
    return KnowledgeBase(tmp_path / "kb")


def forget_vectors(kb: KnowledgeBase) -> None:
    with kb.write("vectors", config={}, parents=["corpus", "words"]) as folder:
        np.save(folder / "other.npy", np.zeros(1))


def test_vectors_are_of_unit_length_with_their_evidence(corpus_kb: KnowledgeBase) -> None:
    part = corpus_kb.open("vectors")
    np.testing.assert_allclose(np.linalg.norm(part.array("vectors"), axis=1), 1, atol=1e-5)
    # some are linked from nowhere but articles that teach
    assert (part.array("evidence") == PAGE_AND_LINKS).mean() > 0.98


def test_related_entities_are_closer_than_unrelated_ones(corpus_kb: KnowledgeBase) -> None:
    catalogue, vectors = Catalogue(corpus_kb.open("corpus")), corpus_kb.open("vectors").array("vectors")
    fruit, company, phone, orchard = (
        vectors[catalogue.require(title)] for title in ("Apple", "Apple Inc.", "IPhone", "Orchard")
    )
    assert company @ phone > company @ orchard
    assert fruit @ orchard > fruit @ phone


def test_the_summary_counts_evidence_losses_and_seconds(kb: KnowledgeBase) -> None:
    forget_vectors(kb)
    summary = embed_entities(kb, validation=HeldOutLinks(kb))
    assert summary["evidence"]["page and links"] + summary["evidence"]["page"] == summary["entities"]
    assert summary["entities"] == summary["trained"] == 226
    assert 0 < summary["loss_after"] < summary["loss_before"]
    assert 0 < summary["validation_score"] <= 1
    assert set(summary["seconds_by_step"]) == {"prepare", "embed", "join"}


@pytest.mark.parametrize(
    ("methods", "cuts"),
    [
        (Methods(), [ShardConfig(), ShardConfig(shard_words=3000)]),
        (REFERENCE, [ShardConfig(), ShardConfig(shard_entities=41, block_entities=7)]),
    ],
    ids=["closed-form", "reference"],
)
def test_vectors_do_not_depend_on_shards(kb: KnowledgeBase, methods: Methods, cuts: list[ShardConfig]) -> None:
    ids = []
    for sharding in cuts:
        forget_vectors(kb)
        embed_entities(kb, methods, sharding)
        ids.append(kb.open("vectors").id)
    assert ids[0] == ids[1]


def test_shards_are_cut_by_work(corpus_kb: KnowledgeBase) -> None:
    corpus, words = corpus_kb.open("corpus"), corpus_kb.open("words")
    sharding = ShardConfig(shard_words=5000)
    shared = shard_files.Shared(
        corpus, words, np.zeros((1, 1), np.float32), np.ones(1), Methods(), sharding, None, False, None
    )
    ranges = shard_files.ranges(shared)
    assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 226)
    work = EvidenceReader(corpus, Words(words)).work(0, 226)
    sizes = [work[start:end].sum() for start, end in ranges]
    assert max(sizes) < 5000 + work.max()
    assert min(sizes[:-1]) > 5000 - work.max()


def test_a_run_takes_up_finished_shards_and_redoes_damaged_ones(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kb.open("vectors").id
    forget_vectors(kb)
    sharding, resume = ShardConfig(shard_words=8000), ResumeConfig(storage_path=str(tmp_path), run_name="run")
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "join", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):  # all shards are written, then the driver dies
            embed_entities(kb, sharding=sharding, resume=resume)
    shards = sorted((tmp_path / "run").glob("embed-*/*.npz"))
    assert len(shards) > 2
    shards[1].write_bytes(shards[1].read_bytes()[:1000])
    shards[2].unlink()
    contrasts = shards[0].with_name("contrasts.npy")
    made = contrasts.stat().st_mtime_ns
    seen: list[int] = []
    redone: list[Path] = []

    def recording(function: Any, todo: Any, *options: Any) -> Iterator[Any]:
        redone.extend(task.item.file.local() for task in todo)
        seen.append(contrasts.stat().st_mtime_ns)
        return spread(function, todo, *options)

    spread = tasks._spread
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "_spread", recording)
        embed_entities(kb, sharding=sharding, resume=resume)
    assert redone == shards[1:3]
    assert seen == [made]  # not made again
    assert kb.open("vectors").id == whole
    assert list((tmp_path / "run").iterdir()) == []


def test_a_disk_that_is_full_is_said_in_one_line_and_leaves_no_half_shard(tmp_path: Path) -> None:
    nothing: Any = np.zeros(100_000)
    result = shard_files.ShardResult(nothing, nothing, nothing, nothing, nothing)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))  # files of this process cannot grow beyond
    try:
        with pytest.raises(DeepEdError, match=r"Cannot write .*shard\.npz: .*Finished shards are kept"):
            shard_files.write_shard(Location(tmp_path / "shard.npz"), result)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_the_length_of_the_link_phase_comes_from_validation(kb: KnowledgeBase) -> None:
    asked = Methods(
        embedding=EmbeddingConfig(method="reference"), reference=ReferenceConfig(page_steps=5, link_steps=-1)
    )
    validation = HeldOutLinks(kb)
    validation.entities = validation.entities[:40]
    scores = iter([0.1, 0.3, 0.9, 0.2, 0.1, 0.0])
    validation.score = lambda vectors: next(scores)  # type: ignore[method-assign]
    found = choose_link_steps(kb.open("corpus"), kb.open("words"), asked, ShardConfig(), validation)
    assert found.reference.link_steps == LINK_STEPS[2]
    with pytest.raises(DeepEdError, match="`link_steps` -1 needs validation data"):
        embed_entities(kb, asked, validation=None)


# -- subsets


def write_titles(folder: Path, *titles: str) -> str:
    (folder / "titles.txt").write_text("\n".join(titles) + "\n")
    return str(folder / "titles.txt")


def test_a_subset_is_trained_and_only_it(kb: KnowledgeBase, tmp_path: Path) -> None:
    catalogue = Catalogue(kb.open("corpus"))
    full = np.array(kb.open("vectors").array("vectors"))
    shutil.rmtree(kb.open("vectors").path)
    summary = embed_entities(kb, subset=SubsetConfig(entities=write_titles(tmp_path, "Apple Inc.", "Orchard")))
    part = kb.open("vectors")
    trained = sorted(catalogue.require(title) for title in ("Apple Inc.", "Orchard"))
    assert summary["trained"] == 2
    assert np.flatnonzero(part.array("evidence") != NOT_TRAINED).tolist() == trained
    np.testing.assert_array_equal(part.array("vectors")[trained], full[trained])
    embed_entities(kb, subset=NEW)  # the rest
    np.testing.assert_array_equal(kb.open("vectors").array("vectors"), full)


def test_an_unknown_title_in_the_subset_is_named(kb: KnowledgeBase, tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="No entity 'Zorblatt'"):
        embed_entities(kb, subset=SubsetConfig(entities=write_titles(tmp_path, "Zorblatt")))


PAGES = [f"Common words of page number {n} about trees and fruit, see [[Page {(n + 1) % 8}]]" for n in range(8)]


def ingest(folder: Path, pages: list[str], vectors: Path) -> KnowledgeBase:
    kb = KnowledgeBase(folder / "kb", create=True)
    xml = "".join(page_xml(f"Page {n}", text, page_id=n + 1) for n, text in enumerate(pages))
    build_corpus(kb, CorpusConfig(dump=(str(write_dump(folder / "dump.xml", xml)),), min_word_count=1))
    build_words(kb, WordVectorConfig(word_vectors=str(vectors), dimension=4))
    return kb


def test_only_new_and_changed_entities_are_trained_after_a_new_dump(local_ray_session: None, tmp_path: Path) -> None:
    words = ["Common", "words", "page", "Page", "trees", "fruit", "orchard", "number"]
    rng = np.random.default_rng(0)
    rows = "".join(f"{word} {' '.join(f'{x:.4f}' for x in rng.standard_normal(4))}\n" for word in words)
    (tmp_path / "vectors.txt").write_text(rows)
    kb = ingest(tmp_path, PAGES, tmp_path / "vectors.txt")
    embed_entities(kb)
    before = {
        Catalogue(kb.open("corpus")).title(i): v for i, v in enumerate(np.array(kb.open("vectors").array("vectors")))
    }
    kb = ingest(tmp_path, [*PAGES[:3], PAGES[3] + " orchard", *PAGES[4:], "A new orchard"], tmp_path / "vectors.txt")
    summary = embed_entities(kb, subset=NEW)
    after = {
        Catalogue(kb.open("corpus")).title(i): v for i, v in enumerate(np.array(kb.open("vectors").array("vectors")))
    }
    assert summary["trained"] == 3
    changed = {title for title in after if title not in before or after[title].tobytes() != before[title].tobytes()}
    assert changed == {"Page 3", "Page 4", "Page 8"}  # Page 4 is linked from the words that were added
    unchanged = kb.manifest()
    embed_entities(kb, subset=NEW)  # nothing is new now
    assert kb.manifest() == unchanged


def test_vectors_of_another_setting_are_not_added_to(kb: KnowledgeBase) -> None:
    with pytest.raises(DeepEdError, match=r"were made with other method, .* Run without --only-new"):
        embed_entities(kb, REFERENCE, subset=NEW)


def test_only_new_without_vectors_says_what_to_do(kb: KnowledgeBase) -> None:
    shutil.rmtree(kb.open("vectors").path)
    with pytest.raises(DeepEdError, match="--only-new adds to vectors"):
        embed_entities(kb, subset=NEW)


def test_a_text_gets_the_vector_its_page_would_have(corpus_kb: KnowledgeBase) -> None:
    catalogue, vectors = Catalogue(corpus_kb.open("corpus")), corpus_kb.open("vectors").array("vectors")
    vector = embed_text(corpus_kb, "Cider", "A drink pressed from the apples of an orchard, fruit of the tree.")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert vector @ vectors[catalogue.require("Orchard")] > vector @ vectors[catalogue.require("IPhone")]


def test_a_text_without_a_known_word_has_the_zero_vector(corpus_kb: KnowledgeBase) -> None:
    assert not embed_text(corpus_kb, "Zorblatt", "xyzzy").any()
    assert not embed_text(corpus_kb, "", "").any()


def test_a_gpu_that_is_not_asked_for_is_refused() -> None:
    with pytest.raises(DeepEdError, match="`device` cuda needs GPUs"):
        ShardConfig(device="cuda")
