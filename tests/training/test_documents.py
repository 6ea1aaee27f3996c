"""What a linker learns from: given documents, or the dump's own links, or nothing."""

from pathlib import Path

import pytest

from deeped_ray import open as open_kb
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
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
from tests.conftest import page_xml, write_dump


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


def test_fifty_mentions_and_something_to_validate_on_are_enough() -> None:
    document = Document("d", "x" * 60, tuple(Mention(place, place + 1, "X") for place in range(50)))
    assert TrainingDocuments.of([document], [document]).are_enough
    assert not TrainingDocuments.of([document], []).are_enough
    assert not TrainingDocuments.of([Document("d", "x", ())], [document]).are_enough


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


def built(folder: Path, pages: str, **settings: float) -> KnowledgeBase:
    kb = KnowledgeBase(folder / "kb", create=True)
    dump = str(write_dump(folder / "dump.xml", pages))
    numbers = {"min_word_count": 1, "min_links_without_page": 0, "partitions": 2, **settings}
    build_corpus(kb, CorpusConfig(dump=(dump,), **numbers))  # type: ignore[arg-type]
    build_words(kb, WordVectorConfig(dimension=2))
    embed_entities(kb)
    build_index(kb, IndexConfig())
    return kb


@pytest.mark.parametrize(
    ("pages", "settings"),
    [
        (THREE_PAGES, {}),
        (DEAD_LINKS, {}),
        (DEAD_LINKS, {"teaching_links": 0}),
        (DEAD_LINKS, {"max_teaching_share": 1.0}),
    ],
    ids=["three pages without links", "links to nowhere", "none may teach", "all teach"],
)
def test_with_too_little_to_learn_from_the_linker_answers_by_prior_alone(
    pages: str, settings: dict[str, float], local_ray_session: None, tmp_path: Path
) -> None:
    kb = built(tmp_path, pages, **settings)
    config = TrainingConfig(epochs=1)
    summary = train_linker(kb, config, ModelConfig(forms="diagonal"), CandidateConfig(), WorkerConfig())
    title = "Apple" if pages is THREE_PAGES else "Town 7"
    if settings.get("max_teaching_share") == 1.0:
        # sixty links teach, all of them to things that the wiki does not have
        assert set(summary["dev_accuracy"]) == {"local", "global"}
    else:
        assert summary["models"] == []
        assert Linker.open(kb, "global").model is None
    (answer,) = open_kb(kb.root).link(f"{title} is here.", [(0, len(title))])
    assert title in [candidate.title for candidate in answer.candidates]
    assert 0 <= answer.candidates[0].probability <= 1


def test_annotated_documents_need_some_for_validation(local_ray_session: None, tmp_path: Path) -> None:
    kb = built(tmp_path, THREE_PAGES)
    with pytest.raises(DeepEdError, match="Give --dev, as in aida:FILE"):
        with_defaults(kb, TrainingConfig(train=("mini:train",)))
