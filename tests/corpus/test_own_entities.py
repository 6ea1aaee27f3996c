"""Entities from files become a knowledge base, alone and on top of a dump, on a real Ray."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.corpus import teaching
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.own_entities import claimed_names
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.wikidata import WikidataConfig, add_wikidata
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.linking.detection import DetectionConfig, open_detector
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

ROWS: tuple[dict[str, Any], ...] = (
    {
        "id": "P7",
        "title": "Falcon 7",
        "aliases": [{"name": "Falcon", "count": 3}, "the seven"],
        "description": "A coffee grinder of steel.",
        "examples": ["My Falcon jams often."],
        "url": "https://shop.example/7",
    },
    {"title": "Falcon 9", "aliases": [{"name": "Falcon", "count": 1}, "the seven"], "description": "A kettle."},
    {"title": "Ada Stone", "type": "person", "wikidata": "Q7", "description": "She designs kettles."},
    {"title": "The", "description": "A band from the north."},
)
SETTINGS: dict[str, Any] = {"min_word_count": 1, "partitions": 2, "teaching_links": 0}


def write_entities(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def priors_of(kb: KnowledgeBase, name: str) -> dict[str, float]:
    corpus = kb.open("corpus")
    catalogue = Catalogue(corpus)
    found = MentionTable(corpus).candidates(name)
    return {catalogue.title(each.entity_id): round(each.prior, 3) for each in found}


def words_of(kb: KnowledgeBase, title: str, table: str) -> set[str]:
    corpus = kb.open("corpus")
    rows, _ = WordCounts(corpus, table).row(Catalogue(corpus).require(title))
    return set(StringIndex(corpus.path, "vocabulary").take(np.asarray(rows, np.int64)))


@pytest.fixture(scope="module")
def kb(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("own")
    kb = KnowledgeBase(folder / "kb", create=True)
    file = write_entities(folder / "own.jsonl", *ROWS)
    build_corpus(kb, CorpusConfig(entities=(str(file),), **SETTINGS))
    return kb


def test_entities_alone_make_a_catalogue_with_persons_and_addresses(kb: KnowledgeBase) -> None:
    catalogue = Catalogue(kb.open("corpus"))
    assert {catalogue.title(entity) for entity in range(len(catalogue))} == {row["title"] for row in ROWS}
    assert catalogue.find("P7") == catalogue.require("Falcon 7")
    assert catalogue.is_person.tolist().count(True) == 1
    assert catalogue.is_person[catalogue.require("Ada Stone")]
    assert catalogue.url("Falcon 7") == "https://shop.example/7"
    assert catalogue.url("Falcon 9") == "urn:entity:Falcon_9"


def test_counts_of_aliases_are_priors_and_without_counts_they_are_uniform(kb: KnowledgeBase) -> None:
    # 3 of its alias and 1 of its example
    assert priors_of(kb, "Falcon") == {"Falcon 7": 0.8, "Falcon 9": 0.2}
    assert priors_of(kb, "the seven") == {"Falcon 7": 0.5, "Falcon 9": 0.5}
    assert priors_of(kb, "The") == {"The": 1.0}


def test_names_are_claimed_unless_they_stand_everywhere(kb: KnowledgeBase) -> None:
    names = claimed_names(kb.open("corpus"))
    assert {"Falcon 7", "Falcon", "the seven", "P7", "Ada Stone"} <= {*names}
    assert "The" not in names


def test_names_without_any_link_are_found_in_raw_text(kb: KnowledgeBase) -> None:
    text = "The Falcon 9 of Ada Stone, the seven and the P7x."
    found = open_detector(kb, DetectionConfig()).spans(text)
    assert {text[start:end] for start, end in found} >= {"Falcon 9", "Ada Stone", "the seven"}


def test_words_come_from_the_description_and_around_the_name_in_examples(kb: KnowledgeBase) -> None:
    assert words_of(kb, "Falcon 7", PAGE_WORDS) == {"Falcon", "coffee", "grinder", "steel"}
    assert words_of(kb, "Falcon 7", LINK_WORDS) == {"jams"}


def test_word_vectors_are_learned_from_a_handful_of_sentences(kb: KnowledgeBase) -> None:
    made = build_words(kb, WordVectorConfig(dimension=100))
    assert made["dimension"] == made["words"] - 1
    assert np.isfinite(kb.open("words").array("vectors")).all()


def test_the_same_file_changes_nothing_and_one_word_changes_the_pages(kb: KnowledgeBase, tmp_path: Path) -> None:
    before = kb.open("pages").id
    same = write_entities(tmp_path / "own.jsonl", *ROWS)
    build_corpus(kb, CorpusConfig(entities=(str(same),), **SETTINGS))
    assert kb.open("pages").id == before


DUMP = page_xml("Falcon", "A falcon is a bird with [[Wing|wings]]", page_id=1) + page_xml(
    "Wing", "A [[falcon]] has wings. Another [[Falcon]] has none. [[Falcon]] and [[Falcon]] fly", page_id=2
)


@pytest.fixture(scope="module")
def on_top(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("top")
    kb = KnowledgeBase(folder / "kb", create=True)
    dump = write_dump(folder / "dump.xml", DUMP)
    file = write_entities(folder / "own.jsonl", *ROWS)
    build_corpus(kb, CorpusConfig(dump=(str(dump),), entities=(str(file),), **SETTINGS))
    return kb


def test_aliases_compete_with_the_links_of_a_dump(on_top: KnowledgeBase) -> None:
    # the bird: 3 links and half a count for its title; the products: 3 and an example, and 1
    assert priors_of(on_top, "Falcon") == {"Falcon 7": 0.471, "Falcon": 0.412, "Falcon 9": 0.118}
    catalogue = Catalogue(on_top.open("corpus"))
    assert catalogue.url("Wing") == "https://en.wikipedia.org/wiki/Wing"
    assert catalogue.url("Falcon 9") == "urn:entity:Falcon_9"


def test_wikidata_ids_of_the_file_are_ids_of_the_knowledge_base(on_top: KnowledgeBase) -> None:
    assert add_wikidata(on_top, WikidataConfig())["wikidata_ids"] == 1
    catalogue = Catalogue.open(on_top)
    assert catalogue.identify("Q7") == catalogue.require("Ada Stone")


def test_entities_go_on_top_of_what_a_knowledge_base_has(on_top: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    dump = write_dump(tmp_path / "dump.xml", DUMP)
    build_corpus(kb, CorpusConfig(dump=(str(dump),), **SETTINGS))
    dump.unlink()
    file = write_entities(tmp_path / "own.jsonl", *ROWS)
    build_corpus(kb, CorpusConfig(entities=(str(file),), **SETTINGS))
    assert kb.open("corpus").id == on_top.open("corpus").id


def test_examples_teach_and_are_then_not_counted(local_ray_session: None, tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    examples = [f"The Falcon number {number} jams." for number in range(20)]
    file = write_entities(tmp_path / "own.jsonl", {"title": "Falcon", "examples": examples})
    settings = {**SETTINGS, "teaching_links": 100, "max_teaching_share": 0.5}
    summary = build_corpus(kb, CorpusConfig(entities=(str(file),), **settings))
    splits: tuple[teaching.Split, ...] = ("train", "dev")
    taught = [document for split in splits for document in teaching.read(kb.open("corpus"), split)]
    assert 0 < len(taught) <= 10
    assert summary["followed_links"] == 20 - len(taught)


def test_a_missing_file_is_told_before_any_work(tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with pytest.raises(DeepEdError, match=r"Cannot read .*none.csv: No such file"):
        build_corpus(kb, CorpusConfig(entities=(str(tmp_path / "none.csv"),)))


def test_a_bad_line_ends_the_build_with_one_line(local_ray_session: None, tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    file = write_entities(tmp_path / "own.jsonl", {"title": "A"}, {"aliases": ["B"]})
    with pytest.raises(DeepEdError, match=r"own.jsonl, line 2: no title"):
        build_corpus(kb, CorpusConfig(entities=(str(file),), **SETTINGS))
    assert "pages" not in kb
