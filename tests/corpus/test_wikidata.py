"""Wikidata ids from dumps and tables, and what is refused."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deeped_ray.corpus.catalogue import Catalogue, ExtendedCatalogue
from deeped_ray.corpus.page_props import read_page_props
from deeped_ray.corpus.wikidata import WikidataConfig, add_wikidata, ids_by_title, keep_ids
from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Link, Mention, Page
from tests.conftest import make_catalogue

PAGES = [
    Page(10, "Berlin", "", links=(Link(0, 1, "Nowhere"),)),
    Page(20, "Q400", ""),
    Page(30, "Spree", ""),
    Page(40, "The capital", "", redirect="Berlin"),
]
HEADER = "-- MySQL dump 10.19\n-- Host: db1    Database: testwiki\nCREATE TABLE `page_props` (\n  `pp_page` int\n);\n"
FOOTER = "\n/*!40000 ALTER TABLE `page_props` ENABLE KEYS */;\n-- Dump completed on 2024-03-01 10:06:23\n"
TRAP = r"(30,'displaytitle','it\'s (20,\'wikibase_item\',\'Q7\',NULL)',NULL)"


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    """Three articles, a redirect, and a title without a page that is an entity."""
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with kb.write("corpus", config={}, parents=[]) as folder:
        make_catalogue(folder, PAGES, min_links_without_page=1)
    return kb


def items(pairs: Iterable[tuple[int, str]]) -> str:
    return ",".join(
        f"({page},'page_image_free','{page}.png',NULL),({page},'wikibase_item','{qid}',NULL)" for page, qid in pairs
    )


def page_props(folder: Path, rows: str) -> WikidataConfig:
    file = folder / "testwiki-page_props.sql.gz"
    file.write_bytes(gzip.compress(f"{HEADER}INSERT INTO `page_props` VALUES {rows};{FOOTER}".encode()))
    return WikidataConfig(page_props=str(file))


def table(folder: Path, content: str) -> WikidataConfig:
    (folder / "ids.tsv").write_text(content)
    return WikidataConfig(wikidata=str(folder / "ids.tsv"))


def ids(kb: KnowledgeBase) -> dict[str, str | None]:
    catalogue = Catalogue.open(kb)
    everything = np.arange(len(catalogue))
    return dict(zip(catalogue.titles(everything), catalogue.wikidata.of(everything), strict=True))


def test_articles_have_the_ids_of_page_props_and_nothing_else_has(kb: KnowledgeBase, tmp_path: Path) -> None:
    summary = add_wikidata(
        kb, page_props(tmp_path, f"{items([(10, 'Q64'), (40, 'Q5')])},{TRAP},{items([(30, 'Q1684')])}")
    )
    assert ids(kb) == {"Berlin": "Q64", "Q400": None, "Spree": "Q1684", "Nowhere": None}
    assert (summary["wikidata_ids"], summary["wikidata_rows_without_article"], summary["wikidata_conflicts"]) == (
        2,
        1,
        0,
    )


def test_an_entity_is_found_by_its_id_before_its_title(kb: KnowledgeBase, tmp_path: Path) -> None:
    add_wikidata(kb, page_props(tmp_path, items([(10, "Q400"), (30, "Q1684")])))
    catalogue = Catalogue.open(kb)
    names = ("Q400", "q1684", "http://www.wikidata.org/entity/Q1684", "The capital", "Q9", "q-400")
    assert [catalogue.identify(name) for name in names] == [0, 2, 2, 0, None, None]
    assert catalogue.find("Q400") == catalogue.find_page(20) == 1
    assert catalogue.find_gold(Mention(0, 1, "Q1684")) == 2


def test_rows_are_read_across_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pairs = [(number, f"Q{number * 7 + 1}") for number in range(1, 400)]
    file = Location(page_props(tmp_path, f"{TRAP},{items(pairs)}").page_props or "")
    for size in (40, 121, 1000):
        monkeypatch.setattr("deeped_ray.corpus.page_props._BLOCK_BYTES", size)
        found = [
            row
            for pages, numbers in read_page_props(file)
            for row in zip(pages.tolist(), numbers.tolist(), strict=True)
        ]
        assert found == [(page, int(qid[1:])) for page, qid in pairs]


@pytest.mark.parametrize("key", ["title", "page_id"])
def test_tables_name_articles_by_title_or_page_id(kb: KnowledgeBase, tmp_path: Path, key: str) -> None:
    rows = {"title": ["berlin", "The capital", "Q400", "Spree"], "page_id": [10, 40, 20, 30]}[key]
    columns = {key: rows, "source": ["x"] * 4, "qid": ["Q64", "Q5", "Q6", None]}
    lines = [
        "\t".join(columns),
        *("\t".join(str(cell or "") for cell in row) for row in zip(*columns.values(), strict=True)),
    ]
    add_wikidata(kb, table(tmp_path, "\n".join(lines) + "\n"))
    by_tsv = ids(kb)
    pq.write_table(pa.table(columns), tmp_path / "ids.parquet")
    add_wikidata(kb, WikidataConfig(wikidata=str(tmp_path / "ids.parquet")))
    assert ids(kb) == by_tsv == {"Berlin": "Q64", "Q400": "Q6", "Spree": None, "Nowhere": None}


def test_persons_are_told_by_their_type(kb: KnowledgeBase, tmp_path: Path) -> None:
    lines = ["title\twikidata\ttype", "Berlin\tQ64\tQ515 Q1549591", "Spree\tQ1684\thttp://www.wikidata.org/entity/Q5"]
    summary = add_wikidata(kb, table(tmp_path, "\n".join(lines)))
    catalogue = Catalogue.open(kb)
    assert summary["wikidata_persons"] == 1
    assert [title for title in ids(kb) if catalogue.is_person[catalogue.require(title)]] == ["Spree"]
    kept = ids_by_title(kb)
    assert kept is not None
    with kb.write("corpus", config={}, parents=[]) as folder:
        make_catalogue(folder, [Page(5, "Bonn", ""), *PAGES])
    keep_ids(kb, *kept)
    again = Catalogue.open(kb)
    assert np.flatnonzero(again.is_person).tolist() == [again.require("Spree")]


def test_conflicts_are_counted_and_named(kb: KnowledgeBase, tmp_path: Path) -> None:
    rows = [
        ("Berlin", "Q64"),
        ("Berlin", "Q64"),
        ("berlin", "Q65"),
        ("Spree", "Q64"),
        ("Q400", "Q400"),
        ("Nowhere", "Q9"),
    ]
    summary = add_wikidata(kb, table(tmp_path, "\n".join(["title\twikidata", *map("\t".join, rows)])))
    assert ids(kb) == {"Berlin": "Q64", "Q400": "Q400", "Spree": None, "Nowhere": None}
    assert summary["wikidata_conflicts_named"] == ["Berlin: Q64, then Q65", "Q64: Berlin, then Spree"]
    assert summary["wikidata_conflicts"] == 2


def test_a_file_of_another_wiki_is_refused_with_the_share(kb: KnowledgeBase, tmp_path: Path) -> None:
    rows = [(10, "Q1"), *((1000 + number, f"Q{number}") for number in range(2, 10))]
    with pytest.raises(DeepEdError, match=r"another wiki: 11.1% of its 9 page ids are articles here, and 33.3% of the"):
        add_wikidata(kb, page_props(tmp_path, items(rows)))
    with pytest.raises(DeepEdError, match=r"another wiki: 0.0% of its 1 titles"):
        add_wikidata(kb, table(tmp_path, "title\tqid\nTokyo\tQ1490\n"))
    assert "wikidata" not in kb


def test_a_dump_that_is_cut_off_is_refused_packed_or_not(kb: KnowledgeBase, tmp_path: Path) -> None:
    file = Path(page_props(tmp_path, items((number, f"Q{number}") for number in range(1, 3000))).page_props or "")
    whole = file.read_bytes()
    for content, problem in [
        (whole[:-300], "ended before"),
        (gzip.decompress(whole)[:-60], "not with `-- Dump completed`"),
    ]:
        file.write_bytes(content)
        with pytest.raises(DeepEdError, match=problem):
            add_wikidata(kb, WikidataConfig(page_props=str(file)))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (HEADER.replace("page_props", "pagelinks"), "no dump of the table page_props: found the table pagelinks"),
        ("<mediawiki>", "no dump of the table page_props: found b'<mediawiki>'"),
        (
            f"{HEADER}INSERT INTO `page_props` VALUES (10,'wikibase_item','L64',NULL);{FOOTER}",
            "page 10 has 'L64', which is no",
        ),
    ],
)
def test_what_is_no_page_props_is_refused(kb: KnowledgeBase, tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "x.sql").write_text(content)
    with pytest.raises(DeepEdError, match=problem):
        add_wikidata(kb, WikidataConfig(page_props=str(tmp_path / "x.sql")))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Berlin\tQ64\n", r"columns 'Berlin, Q64'; expected columns page_id or title"),
        ("title\tqid\nBerlin\tQ64\nSpree\t64\n", "row 3: found 'Spree', '64'; .* ids such as Q64"),
        ("title\tqid\nBerlin\n", "row 2: found 'Berlin'; expected columns"),
        ("page_id\tqid\nBerlin\tQ64\n", "row 2: found 'Berlin', 'Q64'; expected columns"),
        ("", "expected columns page_id or title"),
    ],
)
def test_what_is_no_table_of_ids_is_refused(kb: KnowledgeBase, tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(DeepEdError, match=problem):
        add_wikidata(kb, table(tmp_path, content))


def test_numbers_are_those_of_ids_and_of_their_addresses() -> None:
    texts = (
        "Q64",
        " q64 ",
        "https://www.wikidata.org/wiki/Q64",
        "Q0",
        "Q",
        "64",
        "P31",
        "Q12345678901",
        "Q٣",
        "Quebec",
    )
    assert [number_of(text) for text in texts] == [64, 64, 64, *[None] * 7]


def test_ids_of_an_older_corpus_are_not_used(
    kb: KnowledgeBase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_wikidata(kb, page_props(tmp_path, items([(10, "Q64"), (20, "Q1")])))
    with kb.write("corpus", config={}, parents=[]) as folder:
        make_catalogue(folder, [*PAGES[:2], Page(15, "Bonn", "")])
    assert set(ids(kb).values()) == {None}
    assert "run `deeped wikidata` again" in caplog.text


def test_entities_of_candidate_lists_have_no_ids(kb: KnowledgeBase, tmp_path: Path) -> None:
    add_wikidata(kb, page_props(tmp_path, items([(10, "Q64"), (20, "Q1")])))
    extended = ExtendedCatalogue(kb.open("corpus"), [("Bonn", 7)], kb.open("wikidata"))
    assert extended.wikidata.of(np.arange(len(extended))) == ["Q64", "Q1", None, None, None]


def test_the_same_file_makes_the_part_only_once(kb: KnowledgeBase, tmp_path: Path) -> None:
    config = page_props(tmp_path, items([(10, "Q64"), (20, "Q1")]))
    add_wikidata(kb, config)
    made = kb.manifest()["parts"]["wikidata"]
    add_wikidata(kb, config)
    assert kb.manifest()["parts"]["wikidata"] is not made
    assert kb.manifest()["parts"]["wikidata"] == made
    with pytest.raises(DeepEdError, match="not both"):
        WikidataConfig(page_props="a", wikidata="b")
