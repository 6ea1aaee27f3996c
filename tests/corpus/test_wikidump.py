import bz2
import gzip
from pathlib import Path

import pytest

from deeped_ray.corpus.wikidump import (
    DumpError,
    DumpStats,
    RawPage,
    SiteInfo,
    cut_dump,
    find_dumps,
    read_dump,
    read_shard,
    read_siteinfo,
)
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

PAGES = page_xml("apple_pie", "An [[Apple]] &amp;amp; more", page_id=5) + page_xml(
    "Tart", "", page_id=6, redirect="Apple pie"
)


def read(path: Path) -> list[RawPage]:
    return list(read_dump(Location(path), DumpStats()))


def test_pages_and_redirects_are_read(tmp_path: Path) -> None:
    pages = read(write_dump(tmp_path / "dump.xml", PAGES))
    assert pages == [RawPage(5, "Apple pie", "An [[Apple]] &amp; more", None), RawPage(6, "Tart", "", "Apple pie")]


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress])
def test_compressed_dumps_are_told_by_content(tmp_path: Path, compress: object) -> None:
    plain = write_dump(tmp_path / "dump.xml", PAGES)
    packed = tmp_path / "dump.dat"
    packed.write_bytes(compress(plain.read_bytes()))  # type: ignore[operator]
    assert read(packed) == read(plain)


def test_a_multistream_bz2_is_read_as_one(tmp_path: Path) -> None:
    plain = write_dump(tmp_path / "dump.xml", PAGES)
    content = plain.read_bytes()
    middle = content.index(b"<page>")
    (tmp_path / "dump.bz2").write_bytes(bz2.compress(content[:middle]) + bz2.compress(content[middle:]))
    assert read(tmp_path / "dump.bz2") == read(plain)


def test_a_page_whose_text_is_lost_is_named_and_an_empty_one_is_not(tmp_path: Path) -> None:
    pages = page_xml("Lost", "x", page_id=5).replace("text>", "texts>")
    stats, empty = DumpStats(), page_xml("Empty", "", page_id=6)
    found = read_dump(Location(write_dump(tmp_path / "dump.xml", pages + empty)), stats)
    assert [page.title for page in found] == ["Lost", "Empty"]
    assert stats.damage == ["page 5, 'Lost': a revision without a text"]


def test_other_namespaces_and_untitled_pages_are_counted_and_left_out(tmp_path: Path) -> None:
    stats = DumpStats()
    extra = page_xml("Talk:Apple", "x", ns=1) + page_xml("", "no name", page_id=77)
    pages = list(read_dump(Location(write_dump(tmp_path / "dump.xml", PAGES + extra)), stats))
    assert [page.page_id for page in pages] == [5, 6]
    assert stats == DumpStats(num_other_namespaces=1, untitled_page_ids=[77], damage=[])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match=r"Cannot read .*nowhere\.xml: No such file"):
        read(tmp_path / "nowhere.xml")


@pytest.mark.parametrize(
    ("content", "message"), [("plain text", "starts with"), ("<html></html>", "root is <html>"), ("", "starts with")]
)
def test_a_file_that_is_no_dump_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(content)
    with pytest.raises(DumpError, match=message):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_with_what_to_do(tmp_path: Path, encoding: str) -> None:
    path = write_dump(tmp_path / "dump.xml", PAGES)
    (tmp_path / "dump.xml.bz2").write_bytes(bz2.compress(path.read_text().encode(encoding)))
    with pytest.raises(DumpError, match=r"is UTF-16; dumps are UTF-8\. Convert it: bzcat dump\.xml\.bz2 \| iconv"):
        read(tmp_path / "dump.xml.bz2")


def test_of_a_damaged_stretch_only_the_damaged_pages_are_lost_and_named(tmp_path: Path) -> None:
    torn = page_xml("Torn &amp; worn", "a <ref> tag", page_id=8), page_xml("Open", "x").replace("</page>", "")
    pages = page_xml("First", "a") + torn[0] + page_xml("Second", "b", page_id=9) + torn[1] + page_xml("Third", "c")
    stats = DumpStats()
    found = read_dump(Location(write_dump(tmp_path / "dump.xml", pages)), stats)
    assert [page.title for page in found] == ["First", "Second", "Third"]
    lost = [place.split("byte ")[1] for place in stats.damage]
    assert [place.split(", ")[1].partition(":")[0] for place in lost] == ["'Torn & worn'", "'Open'"]


def test_a_truncated_bz2_gives_what_came_before_and_says_so(tmp_path: Path) -> None:
    many = "".join(page_xml(f"Page {number}", f"{hash(str(number))} " * 300, page_id=number) for number in range(900))
    packed = bz2.compress(write_dump(tmp_path / "dump.xml", many).read_bytes())
    (tmp_path / "dump.bz2").write_bytes(packed[: len(packed) // 2])
    stats = DumpStats()
    pages = list(read_dump(Location(tmp_path / "dump.bz2"), stats))
    assert 0 < len(pages) < 900
    assert stats.damage[0].startswith(f"dump.bz2 after {len(pages):,} pages: ")


def test_a_bz2_cut_within_its_head_is_refused(tmp_path: Path) -> None:
    packed = bz2.compress(write_dump(tmp_path / "dump.xml", PAGES).read_bytes())
    (tmp_path / "dump.bz2").write_bytes(packed[:-20])
    with pytest.raises(DumpError, match="ends early or is damaged at its start"):
        read(tmp_path / "dump.bz2")


@pytest.mark.parametrize("shard_bytes", [1, 50, 137, 400, 10**6])
def test_every_page_belongs_to_one_shard_of_a_plain_dump(tmp_path: Path, shard_bytes: int) -> None:
    path = write_dump(tmp_path / "dump.xml", PAGES)
    pages = [
        page for shard in cut_dump(Location(path), shard_bytes=shard_bytes) for page in read_shard(shard, DumpStats())
    ]
    assert pages == read(path)


def test_language_and_namespaces_come_from_siteinfo(tmp_path: Path) -> None:
    names = '<namespaces><namespace key="0" /><namespace key="6" case="x">Datei</namespace><namespace key="-1">Spezial</namespace></namespaces>'
    path = write_dump(tmp_path / "dump.xml", PAGES, header=f"<siteinfo>{names}</siteinfo>")
    path.write_text(path.read_text().replace("<mediawiki ", '<mediawiki xml:lang="de" ', 1))
    assert read_siteinfo(Location(path)) == SiteInfo("de", frozenset({"datei", "spezial"}))


def test_globs_find_dumps_but_not_their_indexes(tmp_path: Path) -> None:
    for name in (
        "wiki1.xml-p1p9.bz2",
        "wiki2.xml-p10p19.bz2",
        "wiki-multistream-index.txt.bz2",
        "wiki-multistream-index1.txt-p1p9.bz2",
    ):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in find_dumps([str(tmp_path / "wiki*")])] == [
        "wiki1.xml-p1p9.bz2",
        "wiki2.xml-p10p19.bz2",
    ]
    with pytest.raises(DumpError, match="No such file"):
        find_dumps([str(tmp_path / "nothing*.xml")])
