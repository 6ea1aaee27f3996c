"""Ingest on a real Ray."""

from pathlib import Path

import pytest

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.corpus.entities import Catalogue
from deeped_ray.corpus.ingest import CorpusConfig, build_corpus
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.strings import StringIndex
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

PAGES = (
    page_xml("Apple", "Sweet [[Apple Inc.|Apple]] fruit on trees", page_id=1)
    + page_xml("Apple Inc.", "Makes computers, not the [[apple]] of trees, says [[Nobody]]", page_id=2)
    + page_xml("Apple Computer", "", page_id=3, redirect="Apple Inc.")
    + page_xml("Orchard", "Trees bear [[apple]]s and [[Apple Computer|Apple]] bears none", page_id=4)
    + page_xml("Apple (disambiguation)", "* [[Apple]]\n* [[Apple Inc.]]\n{{disambiguation}}", page_id=5)
)
CONFIG = {"min_word_count": 1, "link_window": 4}


def ingest(folder: Path, pages: str = PAGES, *, pages_per_shard: int = 1000) -> KnowledgeBase:
    kb = KnowledgeBase(folder / "kb", create=True)
    dump = write_dump(folder / "dump.xml", pages)
    build_corpus(kb, CorpusConfig(dump=(str(dump),), pages_per_shard=pages_per_shard, min_word_count=1, link_window=4))
    return kb


@pytest.fixture(scope="module")
def kb(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return ingest(tmp_path_factory.mktemp("ingest"))


def test_priors_count_links_after_redirects_and_titles_once(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    catalogue, mentions = Catalogue(corpus), MentionTable(corpus)
    found = [(catalogue.title(candidate.entity_id), candidate.num_links) for candidate in mentions.candidates("Apple")]
    # the fruit: its title and the link of the disambiguation page; the company: two links
    assert sorted(found) == [("Apple", 2), ("Apple Inc.", 2)]
    assert [candidate.num_links for candidate in mentions.candidates("apples")] == [1]


def test_words_are_counted_per_entity_from_page_and_links(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    vocabulary = StringIndex(corpus.path, "vocabulary")
    fruit = Catalogue(corpus).require("Apple")
    page, links = WordCounts(corpus, PAGE_WORDS)[fruit], WordCounts(corpus, LINK_WORDS)[fruit]
    page_words = {vocabulary[int(word)]: int(count) for word, count in zip(page.words, page.counts, strict=True)}
    assert page_words == {"Apple": 2, "Sweet": 1, "fruit": 1, "trees": 1}
    link_words = {vocabulary[int(word)]: int(count) for word, count in zip(links.words, links.counts, strict=True)}
    # windows of two words to each side: "not the _ of trees", "Trees bear _ and Apple"; not the disambiguation page's
    assert link_words == {"trees": 1, "Trees": 1, "bear": 1, "Apple": 1}


def test_links_to_nowhere_are_counted(kb: KnowledgeBase) -> None:
    summary = build_corpus(kb, CorpusConfig(dump=(str(kb.root.parent / "dump.xml"),), **CONFIG))
    assert summary["dead_links"] == 1
    assert (summary["entities"], summary["redirects"], summary["disambiguation_pages"]) == (3, 1, 1)


def test_the_corpus_does_not_depend_on_shards(kb: KnowledgeBase, tmp_path: Path) -> None:
    sharded = ingest(tmp_path, pages_per_shard=2)
    assert sharded.open("corpus").id == kb.open("corpus").id


def test_a_second_run_keeps_what_is_there(kb: KnowledgeBase) -> None:
    before = kb.manifest()
    build_corpus(kb, CorpusConfig(dump=(str(kb.root.parent / "dump.xml"),), **CONFIG))
    assert kb.manifest() == before


def test_a_broken_dump_leaves_nothing_behind(local_ray_session: None, tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text("<mediawiki><page><title>A</title>")
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with pytest.raises(DeepEdError, match="not well-formed"):
        build_corpus(kb, CorpusConfig(dump=(str(tmp_path / "dump.xml"),)))
    assert kb.manifest()["parts"] == {}
    assert list((kb.root / "parts").iterdir()) == []


def test_a_dump_without_frequent_words_says_which_option_to_change(local_ray_session: None, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", PAGES)
    with pytest.raises(DeepEdError, match="--min-word-count"):
        build_corpus(KnowledgeBase(tmp_path / "kb", create=True), CorpusConfig(dump=(str(dump),), min_word_count=1000))
