"""Ingest on a real Ray."""

import bz2
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.corpus import ingest as ingest_module
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.corpus.entities import Catalogue
from deeped_ray.corpus.ingest import CorpusConfig, build_corpus
from deeped_ray.corpus.pages import page_shards
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.strings import StringIndex
from deeped_ray.spread import spread
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

PAGES = (
    page_xml("Apple", "Sweet [[Apple Inc.|Apple]] fruit on trees", page_id=1)
    + page_xml("Apple Inc.", "Makes computers, not the [[apple]] of trees, says [[Nobody]]", page_id=2)
    + page_xml("Apple Computer", "", page_id=3, redirect="Apple Inc.")
    + page_xml("Orchard", "Trees bear [[apple]]s and [[Apple Computer|Apple]] bears none", page_id=4)
    + page_xml("Apple (disambiguation)", "* [[Apple]]\n* [[Apple Inc.]]\n{{disambiguation}}", page_id=5)
)


def config_for(dump: Path, *, shard_mb: float = 4.0, partitions: int = 2, strict: bool = False) -> CorpusConfig:
    return CorpusConfig(
        dump=(str(dump),),
        min_word_count=1,
        link_window=4,
        min_links_without_page=0,
        shard_mb=shard_mb,
        partitions=partitions,
        strict=strict,
    )


def ingest(folder: Path, pages: str = PAGES, *, shard_mb: float = 4.0, partitions: int = 2) -> KnowledgeBase:
    kb = KnowledgeBase(folder / "kb", create=True)
    dump = write_dump(folder / "dump.xml", pages)
    build_corpus(kb, config_for(dump, shard_mb=shard_mb, partitions=partitions))
    return kb


def write_multistream(folder: Path) -> Path:
    """The same pages in Wikimedia's layout: a header stream, a stream per page here, a footer stream, and an index."""
    xml = write_dump(folder / "plain.xml", PAGES).read_bytes()
    cuts = [0, *(match.start() for match in re.finditer(b"<page>", xml)), xml.index(b"</mediawiki>"), len(xml)]
    streams = [bz2.compress(xml[start:end]) for start, end in pairwise(cuts)]
    offsets = np.cumsum([0, *map(len, streams)])[1:-2]
    index = "".join(f"{offset}:{number}:Title\n" for number, offset in enumerate(offsets))
    (folder / "wiki-multistream-index.txt.bz2").write_bytes(bz2.compress(index.encode()))
    path = folder / "wiki-multistream.xml.bz2"
    path.write_bytes(b"".join(streams))
    return path


@pytest.fixture(scope="module")
def kb(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return ingest(tmp_path_factory.mktemp("ingest"))


def test_priors_count_links_after_redirects_and_titles_once(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    catalogue, mentions = Catalogue(corpus), MentionTable(corpus)
    found = [(catalogue.title(candidate.entity_id), candidate.num_links) for candidate in mentions.candidates("Apple")]
    # the fruit: half a count for its title, one link of the disambiguation page; the company: two links
    assert sorted(found) == [("Apple", 1.5), ("Apple Inc.", 2.0)]
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
    summary = build_corpus(kb, config_for(kb.root.parent / "dump.xml"))
    assert summary["dead_links"] == 1
    assert (summary["entities"], summary["redirects"], summary["disambiguation_pages"]) == (3, 1, 1)


@pytest.mark.parametrize(("shard_mb", "partitions"), [(0.0003, 1), (0.0006, 7)])
def test_the_corpus_does_not_depend_on_how_the_dump_is_cut(
    kb: KnowledgeBase, tmp_path: Path, shard_mb: float, partitions: int
) -> None:
    cut = ingest(tmp_path, shard_mb=shard_mb, partitions=partitions)
    assert len(page_shards(cut.open("pages"))) > 1
    assert cut.open("corpus").id == kb.open("corpus").id


def test_multistream_with_and_without_index_gives_the_same_as_plain(kb: KnowledgeBase, tmp_path: Path) -> None:
    dump = write_multistream(tmp_path)
    kbs = [KnowledgeBase(tmp_path / name, create=True) for name in ("indexed", "scanned")]
    build_corpus(kbs[0], config_for(dump, shard_mb=0.0001))
    (tmp_path / "wiki-multistream-index.txt.bz2").unlink()
    build_corpus(kbs[1], config_for(dump, shard_mb=0.0001))
    assert {each.open("corpus").id for each in kbs} == {kb.open("corpus").id}


def test_a_damaged_stream_is_skipped_and_named_and_fails_only_if_strict(
    local_ray_session: None, tmp_path: Path
) -> None:
    dump = write_multistream(tmp_path)
    content = bytearray(dump.read_bytes())
    offset = content.index(b"BZh", content.index(b"BZh", 10) + 10)
    content[offset + 30] ^= 255
    dump.write_bytes(content)
    summary = build_corpus(KnowledgeBase(tmp_path / "kb", create=True), config_for(dump))
    assert len(summary["damaged_stretches"]) == 1
    assert summary["damaged_stretches"][0].startswith(f"wiki-multistream.xml.bz2 at byte {offset:,}: ")
    assert summary["pages"] == 4
    with pytest.raises(DeepEdError, match="1 stretches of the dump are damaged"):
        build_corpus(KnowledgeBase(tmp_path / "strict", create=True), config_for(dump, strict=True))


def test_a_killed_run_goes_on_with_the_shards_that_are_missing(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []

    def interrupted_spread(function: Any, items: Any, *shared: Any) -> Iterator[Any]:
        for result in spread(function, items, *shared):
            if function is ingest_module._parse_shard:
                parsed.append(result[0][0])
                if len(parsed) == 2:
                    raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(ingest_module, "spread", interrupted_spread)
    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path, shard_mb=0.0003)
    resumed = ingest(tmp_path, shard_mb=0.0003)
    assert sorted(set(parsed)) == list(range(len(page_shards(resumed.open("pages")))))
    assert len(parsed) < 2 + len(set(parsed))  # the two that were finished are not read again
    assert resumed.open("corpus").id == kb.open("corpus").id
    assert list((resumed.root / "runs").iterdir()) == []


def test_a_second_run_keeps_what_is_there(kb: KnowledgeBase) -> None:
    before = kb.manifest()
    build_corpus(kb, config_for(kb.root.parent / "dump.xml"))
    assert kb.manifest() == before


def test_a_broken_dump_leaves_nothing_behind(local_ray_session: None, tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text("<mediawiki><page><title>A</title>")
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with pytest.raises(DeepEdError, match=r"contains no pages\. .* a page without an end"):
        build_corpus(kb, CorpusConfig(dump=(str(tmp_path / "dump.xml"),)))
    assert kb.manifest()["parts"] == {}
    assert list((kb.root / "parts").iterdir()) == []


def test_a_dump_without_frequent_words_says_which_option_to_change(local_ray_session: None, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", PAGES)
    with pytest.raises(DeepEdError, match="--min-word-count"):
        build_corpus(KnowledgeBase(tmp_path / "kb", create=True), CorpusConfig(dump=(str(dump),), min_word_count=1000))
