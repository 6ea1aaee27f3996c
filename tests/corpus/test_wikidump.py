import bz2
import gzip
from pathlib import Path

import pytest

from deeped_ray.corpus.wikidump import DumpError, DumpStats, RawPage, read_dump
from tests.conftest import page_xml, write_dump

PAGES = page_xml("apple_pie", "An [[Apple]] &amp;amp; more", page_id=5) + page_xml(
    "Tart", "", page_id=6, redirect="Apple pie"
)


def read(path: Path) -> list[RawPage]:
    return list(read_dump(path, DumpStats()))


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


def test_other_namespaces_and_untitled_pages_are_counted_and_left_out(tmp_path: Path) -> None:
    stats = DumpStats()
    extra = page_xml("Talk:Apple", "x", ns=1) + page_xml("", "no name", page_id=77)
    pages = list(read_dump(write_dump(tmp_path / "dump.xml", PAGES + extra), stats))
    assert [page.page_id for page in pages] == [5, 6]
    assert stats == DumpStats(num_other_namespaces=1, untitled_page_ids=[77])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"Cannot read dump .*nowhere\.xml: No such file"):
        read(tmp_path / "nowhere.xml")


@pytest.mark.parametrize(
    ("content", "message"),
    [("plain text", "not well-formed XML"), ("<html></html>", "root is <html>"), ("", "not well-formed")],
)
def test_a_file_that_is_no_dump_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(content)
    with pytest.raises(DumpError, match=message):
        read(path)


def test_a_dump_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="contains no pages"):
        read(write_dump(tmp_path / "dump.xml", ""))


def test_a_truncated_bz2_says_after_how_many_pages(tmp_path: Path) -> None:
    plain = write_dump(tmp_path / "dump.xml", PAGES)
    packed = bz2.compress(plain.read_bytes())
    (tmp_path / "dump.bz2").write_bytes(packed[:-20])
    with pytest.raises(DumpError, match=r"ends early or is damaged after \d+ pages"):
        read(tmp_path / "dump.bz2")
