"""Ingest on a real Ray."""

import bz2
import dataclasses
import gzip
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.corpus import passes
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.shuffle import Shuffle
from deeped_ray.corpus.wikidump import cut_dump
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.running import tasks
from deeped_ray.storage.location import Location
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


def ingested(folder: Path, pages: str = PAGES, *, shard_mb: float = 4.0, partitions: int = 2) -> KnowledgeBase:
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
    return ingested(tmp_path_factory.mktemp("ingest"))


def test_priors_count_links_after_redirects_and_titles_once(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    catalogue, mentions = Catalogue(corpus), MentionTable(corpus)
    found = [(catalogue.title(candidate.entity_id), candidate.support) for candidate in mentions.candidates("Apple")]
    # the fruit: half a count for its title, one link of the disambiguation page; the company: two links
    assert sorted(found) == [("Apple", 1.5), ("Apple Inc.", 2.0)]
    assert [candidate.support for candidate in mentions.candidates("apples")] == [1]


def test_mentions_know_on_how_many_pages_they_stand_and_are_linked(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    mentions = StringIndex(corpus.path, "mentions")
    counts = {
        mentions[row]: (int(pages), int(linked))
        for row, (pages, linked) in enumerate(
            zip(corpus.array("mentions.pages"), corpus.array("mentions.linked_pages"), strict=True)
        )
    }
    # not the disambiguation page, where every name is a link; "apples" is another mention than "apple"
    assert counts == {
        "Apple": (2, 2),
        "apple": (1, 1),
        "apples": (1, 1),
        "Apple Inc.": (0, 0),
        "Apple Computer": (0, 0),
        "Orchard": (0, 0),
    }


def test_words_are_counted_per_entity_from_page_and_links(kb: KnowledgeBase) -> None:
    corpus = kb.open("corpus")
    vocabulary = StringIndex(corpus.path, "vocabulary")
    fruit = Catalogue(corpus).require("Apple")
    page, links = (
        {vocabulary[int(word)]: int(count) for word, count in zip(*WordCounts(corpus, table).row(fruit), strict=True)}
        for table in (PAGE_WORDS, LINK_WORDS)
    )
    assert page == {"Apple": 2, "Sweet": 1, "fruit": 1, "trees": 1}
    # windows of two words to each side: "not the _ of trees", "Trees bear _ and Apple"; not the disambiguation page's
    assert links == {"trees": 1, "Trees": 1, "bear": 1, "Apple": 1}


def test_links_to_nowhere_are_counted(kb: KnowledgeBase) -> None:
    summary = build_corpus(kb, config_for(kb.root.parent / "dump.xml"))
    assert summary["dead_links"] == 1
    assert (summary["entities"], summary["redirects"], summary["disambiguation_pages"]) == (3, 1, 1)


@pytest.mark.parametrize(("num_shards", "partitions"), [(1, 1), (2, 5), (7, 20)])
def test_the_corpus_does_not_depend_on_how_the_dump_is_cut(
    kb: KnowledgeBase, tmp_path: Path, num_shards: int, partitions: int
) -> None:
    size = (kb.root.parent / "dump.xml").stat().st_size
    cut = ingested(tmp_path, shard_mb=math.ceil(size / num_shards) / 2**20, partitions=partitions)
    assert len(cut_dump(Location(tmp_path / "dump.xml"), shard_bytes=math.ceil(size / num_shards))) == num_shards
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


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, tasks.Outcome[Any]]:
    """What every pass came to, when it was last run."""
    found: dict[str, tasks.Outcome[Any]] = {}
    run = tasks.run

    def recorded(stage: str, *args: Any, **options: Any) -> tasks.Outcome[Any]:
        found[stage] = run(stage, *args, **options)
        return found[stage]

    monkeypatch.setattr(tasks, "run", recorded)
    return found


def ingest_until(point: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest, one small shard at a time, up to a call of this function of the driver."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(f"deeped_ray.{point}", interrupt)
        ingested(folder, shard_mb=0.0001)


def test_every_pass_is_skipped_that_a_killed_run_has_finished(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, tasks.Outcome[Any]]
) -> None:
    ingest_until("knowledge.base.link_or_copy", tmp_path, monkeypatch)
    ingest_until("corpus.catalogue.write", tmp_path, monkeypatch)
    resumed = ingested(tmp_path, shard_mb=0.0001)
    stages = ["entities", "reread", "reread own", "parse", "combine", "merge", "seal"]
    stages += ["teach", "redirects", "follow 1", "find entities", "combine entities", "number", "lead", "index titles"]
    stages += ["names", "count", "aliases", "sources", "reduce", "join"]
    stages += ["occurrences", "combine occurrences", "reduce occurrences"]
    assert list(outcomes) == stages
    assert all(outcome.num_skipped == len(outcome.results) for outcome in outcomes.values())
    assert resumed.open("corpus").id == kb.open("corpus").id
    assert list((resumed.root / "runs").iterdir()) == []


def test_a_pass_goes_on_with_the_tasks_that_are_missing(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, tasks.Outcome[Any]]
) -> None:
    # four tasks are under way on two CPUs when the first is finished, and end by themselves; others are not begun
    ingest_until("running.tasks.Progress.advance", tmp_path, monkeypatch)
    resumed = ingested(tmp_path, shard_mb=0.0001)
    assert 1 <= outcomes["parse"].num_skipped < len(outcomes["parse"].results)
    assert resumed.open("corpus").id == kb.open("corpus").id


def test_receipts_count_only_while_the_mark_of_their_run_is_there(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, tasks.Outcome[Any]]
) -> None:
    ingest_until("knowledge.base.link_or_copy", tmp_path, monkeypatch)
    for mark in (tmp_path / "kb" / "runs").rglob("attempt-*.json"):
        mark.unlink()
    again = ingested(tmp_path, shard_mb=0.0001)
    assert outcomes["parse"].num_skipped == outcomes["merge"].num_skipped == 0
    assert again.open("corpus").id == kb.open("corpus").id


def test_leftovers_of_a_task_that_was_cut_in_other_lots_are_not_read(tmp_path: Path) -> None:
    (shard,) = cut_dump(Location(write_dump(tmp_path / "dump.xml", PAGES)), shard_bytes=2**20)
    shuffle = Shuffle(Location(tmp_path), 2**20, 1)
    passes.parse_shard((0, shard), shuffle, 100)
    found = passes.parse_shard((0, shard), shuffle, 2**20)
    tables = {name.partition("-")[0]: {name: sizes} for name, sizes in found["spilled"].items()}
    partitions = [shuffle.plan(table, spilled).partitions[0] for table, spilled in tables.items()]
    assert [passes.merge_partition(place, partitions, shuffle) for place in (0, 1)] == [{"rows": 6}, {"rows": 12}]


def test_a_second_run_keeps_what_is_there(kb: KnowledgeBase) -> None:
    before = kb.manifest()
    build_corpus(kb, config_for(kb.root.parent / "dump.xml"))
    assert kb.manifest() == before


def test_a_broken_dump_leaves_nothing_behind(local_ray_session: None, tmp_path: Path) -> None:
    text = "<revision><text>Words.</text></revision></page>"
    others = f"<page><title>Help:A</title><ns>12</ns><id>1</id>{text}<page><ns>0</ns><id>13</id>{text}"
    (tmp_path / "dump.xml").write_text(f"<mediawiki>{others}<page><title>A</title>")
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    lost = r"no articles\. Left out: 1 of other namespaces, 1 without a title \(13\)\. .* a page without an end"
    with pytest.raises(DeepEdError, match=lost):
        build_corpus(kb, CorpusConfig(dump=(str(tmp_path / "dump.xml"),)))
    assert kb.manifest()["parts"] == {}
    assert list((kb.root / "parts").iterdir()) == []


def test_a_dump_without_frequent_words_says_which_option_to_change(local_ray_session: None, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", PAGES)
    with pytest.raises(DeepEdError, match="`min_word_count`"):
        build_corpus(KnowledgeBase(tmp_path / "kb", create=True), CorpusConfig(dump=(str(dump),), min_word_count=1000))


def test_further_sources_of_priors_are_merged_by_the_rule_asked_for(local_ray_session: None, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", PAGES)
    (tmp_path / "counts.tsv").write_text("Apple\tApple Computer\t6\ntree\tOrchard\t2\nApple\tPear\t9\nbroken\n")
    (tmp_path / "means.tsv").write_text('"Apple"\tOrchard\n' * 2 + '"Apple"\tApple\n')
    (tmp_path / "pem.txt").write_text("firm\t4\t2,4\t\n")  # a page id without a title
    sources = (f"counts:{tmp_path / 'counts.tsv'}", f"yago:{tmp_path / 'means.tsv'}", f"deep-ed:{tmp_path / 'pem.txt'}")
    config = dataclasses.replace(config_for(dump), priors=sources, merge_priors="deep-ed")
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    summary = build_corpus(kb, config)
    catalogue, mentions = Catalogue(kb.open("corpus")), MentionTable(kb.open("corpus"))
    apple = {catalogue.title(each.entity_id): (each.prior, each.support) for each in mentions.candidates("Apple")}
    # counts 1.5 (fruit) and 2 + 6 (company) of 9.5; YAGO adds a half each to the fruit and the orchard
    assert apple == {
        "Apple Inc.": pytest.approx((8 / 9.5, 8)),
        "Apple": pytest.approx((1.5 / 9.5 + 0.5, 2.5)),
        "Orchard": pytest.approx((0.5, 1)),
    }
    assert [catalogue.title(each.entity_id) for each in mentions.candidates("firm")] == ["Apple Inc."]
    assert (summary["prior_counts"], summary["prior_counts_without_entity"]) == (6, 1)
    assert summary["unreadable_prior_lines"] == 1


PERSONS = (
    page_xml("Ann Smith", "Ann Smith is a poet of [[Berlin]].\n[[Category:1950 births]]", page_id=1)
    + page_xml("Berlin", "Berlin is a city of [[Bob Jones]]", page_id=2)
    + page_xml("Bob Jones", "Bob Jones (born 1950) is a poet of [[Berlin]]", page_id=3)
    + page_xml("Carla Lee", "Carla Lee is a poet of [[Berlin]]", page_id=4)
    + page_xml("Carla", "", page_id=5, redirect="Carla Lee")
)


def test_persons_are_those_of_the_dump_and_of_a_file_however_the_dump_is_cut(
    local_ray_session: None, tmp_path: Path
) -> None:
    dump = write_dump(tmp_path / "dump.xml", PERSONS)
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    assert build_corpus(kb, config_for(dump))["persons"] == 2
    assert Catalogue(kb.open("corpus")).is_person.tolist() == [True, False, True, False]
    (tmp_path / "persons.txt").write_text("carla\n")
    ids = set()
    for partitions, shard_mb in ((1, 1.0), (5, 0.0003)):
        config = config_for(dump, shard_mb=shard_mb, partitions=partitions)
        kb = KnowledgeBase(tmp_path / f"kb{partitions}", create=True)
        assert build_corpus(kb, dataclasses.replace(config, persons=str(tmp_path / "persons.txt")))["persons"] == 3
        assert Catalogue(kb.open("corpus")).is_person.tolist() == [True, False, True, True]
        ids.add(kb.open("corpus").id)
    assert len(ids) == 1


def test_another_file_of_persons_makes_the_corpus_anew(local_ray_session: None, tmp_path: Path) -> None:
    dump, persons = write_dump(tmp_path / "dump.xml", PERSONS), tmp_path / "persons.txt"
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    config = dataclasses.replace(config_for(dump), persons=str(persons))
    with pytest.raises(DeepEdError, match=r"Cannot read .*persons\.txt"):
        build_corpus(kb, config)
    for titles, num_persons in (("Carla\n", 3), ("Berlin\nCarla Lee\n", 4)):
        persons.write_text(titles)
        assert build_corpus(kb, config)["persons"] == num_persons


def test_the_summary_says_how_much_memory_workers_took(local_ray_session: None, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", PAGES)
    summary = build_corpus(KnowledgeBase(tmp_path / "kb", create=True), config_for(dump))
    assert 0 < summary["peak_worker_gib"] < summary["memory_gib"] == 2.0


def test_extracted_text_gives_the_same_links_as_the_dump(kb: KnowledgeBase, tmp_path: Path) -> None:
    docs = (
        '<doc id="1" title="Apple">\nApple\n\nSweet <a href="Apple%20Inc.">Apple</a> fruit on trees\n</doc>\n'
        '<doc id="2" title="Apple Inc.">\nApple Inc.\n\nMakes computers, not the <a href="apple">apple</a> of trees\n</doc>\n'
    )
    (tmp_path / "wiki_00").write_text(docs)
    extracted = KnowledgeBase(tmp_path / "kb", create=True)
    summary = build_corpus(extracted, config_for(tmp_path / "wiki_00"))
    assert (summary["pages"], summary["links"], summary["followed_links"]) == (2, 2, 2)
    corpus, whole = extracted.open("corpus"), kb.open("corpus")
    words = [
        {StringIndex(part.path, "vocabulary")[int(word)] for word in WordCounts(part, PAGE_WORDS).row(0)[0]}
        for part in (corpus, whole)
    ]
    assert words[0] == words[1]


def test_pages_of_a_file_that_cannot_be_cut_are_parsed_by_the_lot(tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml.gz"
    dump.write_bytes(gzip.compress(write_dump(tmp_path / "dump.xml", PAGES).read_bytes()))
    (shard,) = cut_dump(Location(dump), shard_bytes=100)
    found = passes.parse_shard((0, shard), Shuffle(Location(tmp_path), 2**20), 250)
    assert found["counts"]["pages"] == 5
    assert found["lots"] == ["000000-0000", "000000-0001"]
