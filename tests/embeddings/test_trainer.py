"""Sharded embedding on a real Ray: same bytes however it is cut or interrupted."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.artifacts import KnowledgeBase, ResumeConfig
from deeped_ray.corpus.entities import Catalogue
from deeped_ray.embeddings import trainer
from deeped_ray.embeddings.trainer import NO_EVIDENCE, PAGE_AND_LINKS, EmbeddingConfig, ShardConfig, embed_entities
from deeped_ray.embeddings.words import Words
from deeped_ray.spread import spread
from deeped_ray.types import DeepEdError

QUICK = EmbeddingConfig(page_steps=20, link_steps=5)


@pytest.fixture
def kb(corpus_kb: KnowledgeBase, tmp_path: Path) -> KnowledgeBase:
    shutil.copytree(corpus_kb.root, tmp_path / "kb")
    return KnowledgeBase(tmp_path / "kb")


def test_vectors_are_of_unit_length_with_their_evidence(corpus_kb: KnowledgeBase) -> None:
    part = corpus_kb.open("vectors")
    np.testing.assert_allclose(np.linalg.norm(part.array("vectors"), axis=1), 1, atol=1e-5)
    assert (part.array("evidence") == PAGE_AND_LINKS).all()


def test_training_lowers_the_loss(corpus_kb: KnowledgeBase) -> None:
    before, after = corpus_kb.open("vectors").array("losses").mean(axis=0)
    assert after < before


def test_related_entities_are_closer_than_unrelated_ones(corpus_kb: KnowledgeBase) -> None:
    catalogue, vectors = Catalogue(corpus_kb.open("corpus")), corpus_kb.open("vectors").array("vectors")
    fruit, company, phone, orchard = (
        vectors[catalogue.require(title)] for title in ("Apple", "Apple Inc.", "IPhone", "Orchard")
    )
    assert company @ phone > company @ orchard
    assert fruit @ orchard > fruit @ phone


def test_vectors_do_not_depend_on_shards(kb: KnowledgeBase) -> None:
    embed_entities(kb, QUICK, ShardConfig(shard_entities=500))
    whole = kb.open("vectors").id
    with kb.write("vectors", config={}, parents=["corpus", "words"]) as folder:
        np.save(folder / "other.npy", np.zeros(1))
    embed_entities(kb, QUICK, ShardConfig(shard_entities=41))
    assert kb.open("vectors").id == whole


def test_a_run_takes_up_finished_shards_and_redoes_damaged_ones(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharding, resume = ShardConfig(shard_entities=60), ResumeConfig(storage_path=str(tmp_path), run_name="run")
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "_read_shard", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(trainer, "_is_finished", lambda path: False)
        with pytest.raises(KeyboardInterrupt):  # all shards are written, then the driver dies
            embed_entities(kb, QUICK, sharding, resume)
    shards = sorted((tmp_path / "run").glob("embed-*/*.npz"))
    assert len(shards) == 4
    shards[1].write_bytes(shards[1].read_bytes()[:1000])
    shards[2].unlink()
    redone: list[Path] = []

    def recording_spread(function: Any, items: Any, *shared: Any) -> Iterator[Any]:
        redone.extend(path for path, _ in items)
        return spread(function, items, *shared)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "spread", recording_spread)
        embed_entities(kb, QUICK, sharding, resume)
    assert redone == shards[1:3]
    resumed = kb.open("vectors").id
    assert list((tmp_path / "run").iterdir()) == []
    with kb.write("vectors", config={}, parents=["corpus", "words"]) as folder:
        np.save(folder / "other.npy", np.zeros(1))
    embed_entities(kb, QUICK, sharding)
    assert kb.open("vectors").id == resumed


def test_an_entity_without_any_known_word_is_marked(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    nothing = np.full(len(corpus.array("vocabulary.counts")), -1, dtype=np.int32)
    sources = trainer.EntityWords(corpus, words, nothing)
    monkeypatch.setattr(words, "find", lambda word: None)
    assert trainer.gather_evidence(0, sources).kind == NO_EVIDENCE


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(DeepEdError, match="positive"):
        EmbeddingConfig(gamma=0.0)
