import bz2
from pathlib import Path

import pytest

from deeped_ray.corpus.wikidump import DumpStats, cut_dump, find_dumps, read_siteinfo
from deeped_ray.corpus.wikiextractor import parse_body, read_docs
from deeped_ray.storage.location import Location
from deeped_ray.types import Link, Page

DOCS = """<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Apple &amp; Pear">
Apple &amp; Pear

A <a href="Fruit">fruit</a> &amp; a <a href="Apple%20Inc.%23History">company</a>.
</doc>
<doc id="13" url="" title="Orchard">
Orchard

Trees, see <a href="Category%3ATrees">trees</a> and <a href="orchard">itself</a>.
</doc>
"""
PAGES = [
    Page(12, "Apple & Pear", "A fruit & a company.", (Link(2, 7, "Fruit"), Link(12, 19, "Apple Inc."))),
    Page(13, "Orchard", "Trees, see trees and itself."),
]


def read(path: Path, shard_bytes: int = 2**20) -> list[Page]:
    assert read_siteinfo(Location(path)).is_extracted
    return [
        page for shard in cut_dump(Location(path), shard_bytes=shard_bytes) for page in read_docs(shard, DumpStats())
    ]


@pytest.mark.parametrize("shard_bytes", [10, 100, 2**20])
def test_docs_become_pages_with_links_however_the_file_is_cut(tmp_path: Path, shard_bytes: int) -> None:
    (tmp_path / "wiki_00").write_text(DOCS)
    assert read(tmp_path / "wiki_00", shard_bytes) == PAGES


def test_a_compressed_file_of_many_streams_is_read_as_one(tmp_path: Path) -> None:
    content = DOCS.encode()
    (tmp_path / "wiki_00.bz2").write_bytes(bz2.compress(content[:70]) + bz2.compress(content[70:]))
    assert read(tmp_path / "wiki_00.bz2") == PAGES


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    for name in ("AA/wiki_00", "AB/wiki_01"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(DOCS)
    assert [path.name for path in find_dumps([str(tmp_path)])] == ["wiki_00", "wiki_01"]


def test_a_page_without_an_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_text(DOCS.replace("</doc>\n<doc", "<doc"))
    stats = DumpStats()
    (shard,) = cut_dump(Location(tmp_path / "wiki_00"), shard_bytes=2**20)
    assert list(read_docs(shard, stats)) == PAGES[1:]
    assert stats.damage == ["wiki_00 at byte 0: page 12 without an end"]


def test_an_anchor_left_open_is_text() -> None:
    assert parse_body('see <a href="X">x and <a href="Y">y</a>') == ('see <a href="X">x and y', [Link(22, 23, "Y")])
