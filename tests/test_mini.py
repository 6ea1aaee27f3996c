"""What the embedded encyclopedia promises."""

import re
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from deeped_ray import open as open_kb
from deeped_ray import stages
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.pages import page_shards, read_pages
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.wikidump import DumpStats, read_dump
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.mini import KLEINE_CONFIG, KLEINE_DUMP, KLEINE_TEST, MINI_DUMP
from deeped_ray.running.config import merge, read_config
from deeped_ray.storage.location import Location
from deeped_ray.types import Document
from tests.conftest import fitting_here

SPLITS = ("train", "dev", "test")
MODELS: tuple[Literal["prior", "global"], ...] = ("prior", "global")
PAPERS_NAMES = (
    "Apple",
    "Queen",
    "Scotland",
    "Wolverhampton",
    "Montreal",
    "Santander",
    "World Cup",
    "Leicestershire",
    "Japan",
    "Italians",
    "Australia",
)


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return [document for split in SPLITS for document in read_dataset(f"mini:{split}")]


@pytest.fixture(scope="module")
def mentions(corpus_kb: KnowledgeBase) -> MentionTable:
    return MentionTable(corpus_kb.open("corpus"))


def test_articles_are_many_and_of_80_to_200_words() -> None:
    pages = [parse_page(raw) for raw in read_dump(Location(MINI_DUMP), DumpStats())]
    articles = [page for page in pages if page.redirect is None and not page.is_disambiguation]
    assert len(articles) >= 120
    lengths = {page.title: len(page.text.split()) for page in articles}
    assert all(80 <= length <= 200 for length in lengths.values()), lengths


def test_it_is_a_genuine_export_with_real_markup() -> None:
    dump = MINI_DUMP.read_text(encoding="utf-8")
    assert 'version="0.11"' in dump
    for markup in (
        "<redirect title=",
        "{{disambiguation}}",
        "{{Infobox",
        "&lt;ref",
        "[[File:",
        "[[Category:",
        "]]s",
        "#",
    ):
        assert markup in dump


def test_no_sentence_stands_twice(corpus_kb: KnowledgeBase) -> None:
    texts = [
        page.text
        for shard in page_shards(corpus_kb.open("pages"))
        for page in read_pages(shard)
        if not page.is_disambiguation
    ]
    sentences = Counter(
        sentence.strip() for text in texts for sentence in re.split(r"(?<=[.!?])\s", text) if len(sentence.split()) > 5
    )
    assert [sentence for sentence, count in sentences.items() if count > 1] == []


def test_at_least_thirty_names_are_ambiguous_the_papers_among_them(
    documents: list[Document], mentions: MentionTable
) -> None:
    surfaces = {document.surface(mention) for document in documents for mention in document.mentions}
    ambiguous = {surface for surface in surfaces if len(mentions.candidates(surface)) > 1}
    assert len(ambiguous) >= 30
    assert set(PAPERS_NAMES) <= {name for name in PAPERS_NAMES if len(mentions.candidates(name)) > 1}


def test_documents_are_many_and_short(documents: list[Document]) -> None:
    assert len(documents) >= 80
    assert all(4 <= len(document.mentions) <= 8 for document in documents)


def test_all_gold_entities_are_in_the_catalogue(documents: list[Document], corpus_kb: KnowledgeBase) -> None:
    catalogue = Catalogue(corpus_kb.open("corpus"))
    assert {m.gold for d in documents for m in d.mentions if m.gold and catalogue.find(m.gold) is None} == set()


def test_the_most_common_sense_is_wrong_for_a_third_of_ambiguous_mentions(
    documents: list[Document], corpus_kb: KnowledgeBase, mentions: MentionTable
) -> None:
    catalogue = Catalogue(corpus_kb.open("corpus"))
    wrong = total = 0
    for document in documents:
        for mention in document.mentions:
            candidates = mentions.candidates(document.surface(mention))
            if len(candidates) > 1:
                total += 1
                wrong += catalogue.title(candidates[0].entity_id) != mention.gold
    assert total >= 300
    assert wrong / total >= 1 / 3


def test_no_document_of_one_split_stands_in_another(documents: list[Document]) -> None:
    assert max(Counter(document.text for document in documents).values()) == 1


def test_links_alone_teach_a_linker_for_a_german_wiki(local_ray_session: None, tmp_path: Path) -> None:
    settings = {"corpus": {"dump": [str(KLEINE_DUMP)]}, "linker": {"model": "global"}}
    values = merge(read_config(str(KLEINE_CONFIG)), settings)
    _, configs = stages.resolve({**values, "kb": str(tmp_path / "kb")})
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with fitting_here(tmp_path / "checkpoint"):
        stages.run_stages(kb, stages.chosen(configs, until="train_linker"), configs)
    spec = f"jsonl:{KLEINE_TEST}"
    reports = [
        report
        for model in MODELS
        for report in evaluate(kb, EvaluationConfig(dataset=(spec, "links:dev"), model=model))
    ]
    prior, _, taught, _ = (report.result.scores.accuracy for report in reports)
    assert prior < 0.6
    assert taught > prior + 0.15
    sentence = "Bremen verliert in Köln, und Bayern gewinnt den Pokal."
    answers = open_kb(kb.root).link(sentence, [(0, 6), (19, 23), (29, 35)])
    assert [answer.candidates[0].title for answer in answers] == ["Werder Bremen", "1. FC Köln", "FC Bayern München"]
