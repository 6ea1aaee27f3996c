"""What a linker learns from: given documents, or the dump's own links, or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from deeped_ray import open as open_kb
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.documents import TrainingDocuments, split_weight, with_defaults
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import DeepEdError, Document, Mention
from tests.conftest import ingest_pages, page_xml


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("links:train", ("links:train", 1.0)),
        ("links", ("links:train", 1.0)),
        ("links@2", ("links:train", 2.0)),
        ("links:train@0.3", ("links:train", 0.3)),
        ("aida:a@b/train.tsv", ("aida:a@b/train.tsv", 1.0)),
        ("aida:a@b/train.tsv@2", ("aida:a@b/train.tsv", 2.0)),
    ],
)
def test_a_number_behind_the_last_at_is_a_weight(spec: str, expected: tuple[str, float]) -> None:
    assert split_weight(spec) == expected


def test_links_and_annotated_documents_are_learned_from_together(corpus_kb: KnowledgeBase) -> None:
    training = TrainingConfig(train=("links:train@0.5", "mini:train"), dev=("mini:dev",))
    documents = TrainingDocuments.read(corpus_kb, training)
    links, annotated = read_dataset("links:train", kb=corpus_kb), read_dataset("mini:train")
    assert documents.train == links + annotated
    assert documents.weights == [0.5] * len(links) + [1.0] * len(annotated)
    assert documents.dev == read_dataset("mini:dev")
    # so few to calibrate on that those that were learned from are welcome too
    assert documents.calibration == read_dataset("links:dev", kb=corpus_kb) + annotated + links


def test_articles_that_teach_and_those_for_validation_are_others(corpus_kb: KnowledgeBase) -> None:
    train, dev = (
        {document.name.rpartition(",")[0] for document in read_dataset(f"links:{split}", kb=corpus_kb)}
        for split in ("train", "dev")
    )
    assert train
    assert dev
    assert not train & dev


def test_links_are_read_from_a_knowledge_base() -> None:
    with pytest.raises(DeepEdError, match="links:dev is read from a knowledge base"):
        read_dataset("links:dev")


THREE_PAGES = "".join(
    page_xml(title, f"{title} is a sweet fruit of green trees.", page_id=number)
    for number, title in enumerate(("Apple", "Pear", "Plum"))
)
DEAD_LINKS = "".join(
    page_xml(
        f"Town {number}",
        f"Town {number} has a red church of [[Fame {number}]], a blue river of [[Sorrow {number}]].",
        page_id=number,
    )
    for number in range(30)
)


@pytest.fixture(scope="module")
def three_pages(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return embedded(ingest_pages(tmp_path_factory.mktemp("three"), THREE_PAGES))


def embedded(kb: KnowledgeBase) -> KnowledgeBase:
    """All that a linker is trained on."""
    build_words(kb, WordVectorConfig(dimension=2))
    embed_entities(kb)
    build_index(kb, IndexConfig())
    return kb


def check_that_it_links(kb: KnowledgeBase, title: str) -> None:
    (answer,) = open_kb(kb.root).link(f"{title} is here.", [(0, len(title))])
    assert title in [candidate.title for candidate in answer.candidates]
    assert 0 <= answer.candidates[0].probability <= 1


def test_with_three_pages_the_linker_answers_by_prior_alone(three_pages: KnowledgeBase) -> None:
    assert train(three_pages)["models"] == []
    assert Linker.open(three_pages, "global").model is None
    check_that_it_links(three_pages, "Apple")


def test_fifty_mentions_of_known_entities_and_something_to_validate_on_are_enough(three_pages: KnowledgeBase) -> None:
    known, dead, none = (
        Document("d", "x" * 60, tuple(Mention(place, place + 1, gold) for place in range(count)))
        for gold, count in (("Apple", 50), ("Medlar", 50), ("Apple", 0))
    )
    taught = [(known, known), (dead, known), (none, known)]
    catalogue = Catalogue(three_pages.open("corpus"))
    assert [TrainingDocuments.of([train], [dev]).teach(catalogue) for train, dev in taught] == [True, False, False]
    assert not TrainingDocuments.of([known], []).teach(catalogue)


@pytest.mark.parametrize(
    "settings",
    [{}, {"max_teaching_share": 1.0}, {"teaching_links": 0}],
    ids=["links to nowhere", "sixty of them", "none may teach"],
)
def test_with_too_little_to_learn_from_the_linker_answers_by_prior_alone(
    settings: dict[str, float], local_ray_session: None, tmp_path: Path
) -> None:
    kb = embedded(ingest_pages(tmp_path, DEAD_LINKS, **settings))
    assert train(kb)["models"] == []
    assert Linker.open(kb, "global").model is None
    check_that_it_links(kb, "Town 7")


@pytest.mark.parametrize("title", [None, "Medlar"], ids=["outside of all wikis", "outside of this one"])
def test_documents_whose_mentions_are_all_outside_give_a_linker_that_answers(
    title: str | None, three_pages: KnowledgeBase, tmp_path: Path
) -> None:
    file = tmp_path / "outside.jsonl"
    row = {
        "text": "Apple trees. " * 60,
        "mentions": [{"start": 13 * i, "end": 13 * i + 5, "title": title} for i in range(60)],
    }
    file.write_text(json.dumps(row))
    train(three_pages, train=(f"jsonl:{file}",), dev=(f"jsonl:{file}",))
    check_that_it_links(three_pages, "Apple")


def train(kb: KnowledgeBase, **settings: Any) -> dict[str, Any]:
    training = TrainingConfig(epochs=1, **settings)
    return train_linker(kb, training, ModelConfig(forms="diagonal"), CandidateConfig(), WorkerConfig())


def test_annotated_documents_need_some_for_validation(three_pages: KnowledgeBase) -> None:
    with pytest.raises(DeepEdError, match="Give --dev, as in aida:FILE"):
        with_defaults(three_pages, TrainingConfig(train=("mini:train",)))
