"""A knowledge base as one file: the same bytes each time, unpacked once, and nothing of it outside its folder."""

import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deeped_ray.knowledge.archive import ArchiveError, packed_manifest, unpacked, write_archive
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.s3 import BUCKET, S3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    kb.settings = {"corpus": {"dump": ["/home/me/wiki.xml"], "priors": ["counts:s3://mine/p.tsv"], "dimension": 100}}
    for name, parents in [("pages", []), ("corpus", ["pages"]), ("words", ["corpus", "pages"])]:
        with kb.write(name, config={}, parents=parents) as folder:
            (folder / "x.txt").write_text(name * 1000)
            (folder / "inner").mkdir()
            (folder / "inner" / "y.txt").write_text("y")
    return kb


def pack(kb: KnowledgeBase, target: str | Path) -> dict[str, object]:
    return write_archive(Location(target), kb.home, packed_manifest(kb.manifest()), "the card")


@pytest.fixture
def archive(kb: KnowledgeBase, tmp_path: Path) -> Path:
    pack(kb, tmp_path / "kb.tar")
    return tmp_path / "kb.tar"


@pytest.fixture
def url(archive: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=archive.parent)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/kb.tar"
        server.shutdown()


def repacked(archive: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> Path:
    """The archive with other members."""
    with tarfile.open(archive) as source:
        members = [(member, source.extractfile(member).read()) for member in source]  # type: ignore[union-attr]
    change(members)
    with tarfile.open(archive, "w") as target:
        for member, content in members:
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    return archive


def test_an_archive_holds_what_linking_needs_and_opens_like_a_folder(kb: KnowledgeBase, archive: Path) -> None:
    opened = KnowledgeBase(archive)
    assert str(opened) == str(archive)
    assert list(opened.manifest()["parts"]) == ["corpus", "words"]
    assert opened.open("words").id == kb.open("words").id
    assert (opened.open("corpus").path / "inner" / "y.txt").read_text() == "y"
    assert set(opened.verify().values()) == {None}


def test_no_text_of_articles_is_given_away(kb: KnowledgeBase, tmp_path: Path) -> None:
    with kb.write("corpus", config={}, parents=["pages"]) as folder:
        for name in ("teaching.parquet", "other.parquet"):
            (folder / name).write_text("x")
    pack(kb, tmp_path / "kb.tar")
    assert [path.name for path in KnowledgeBase(tmp_path / "kb.tar").open("corpus").path.iterdir()] == ["other.parquet"]


def test_the_same_knowledge_base_makes_the_same_bytes(kb: KnowledgeBase, archive: Path, tmp_path: Path) -> None:
    (kb.open("corpus").path / "x.txt").touch()
    pack(kb, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()


def test_an_archive_is_unpacked_once_wherever_it_lies(kb: KnowledgeBase, archive: Path, url: str, s3: S3) -> None:
    address = f"s3://{BUCKET}/kb.tar"
    pack(kb, address)
    folders = {unpacked(each) for each in (archive, str(archive), url, address)}
    assert len(folders) == 1
    made = (folders.pop() / "manifest.json").stat().st_mtime_ns
    assert (unpacked(archive) / "manifest.json").stat().st_mtime_ns == made


def test_settings_do_not_tell_where_files_lay(archive: Path) -> None:
    settings = KnowledgeBase(archive).manifest()["parts"]["corpus"]["settings"]["corpus"]
    assert settings == {"dump": ["wiki.xml"], "priors": ["counts:p.tsv"], "dimension": 100}


def test_archives_are_only_read(archive: Path) -> None:
    with pytest.raises(DeepEdError, match="only read"), KnowledgeBase(archive).write("index", config={}, parents=[]):
        pass
    with pytest.raises(DeepEdError, match="is a file"):
        KnowledgeBase(archive, create=True)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5])
def test_an_archive_that_is_cut_off_is_refused_and_leaves_nothing(archive: Path, cache: Path, share: float) -> None:
    archive.write_bytes(archive.read_bytes()[: int(share * len(archive.read_bytes()))])
    with pytest.raises(ArchiveError, match=r"kb\.tar .*(cut off|damaged).*"):
        KnowledgeBase(archive)
    assert not list(cache.glob("archives/*/kb"))


def test_a_changed_byte_is_noticed(archive: Path) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content.replace(b"wordswords", b"wordswordz", 1))
    with pytest.raises(ArchiveError, match=r"x\.txt does not match its checksum"):
        KnowledgeBase(archive)


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "parts/evil", "manifest.json", "kb/../evil"])
def test_what_the_manifest_does_not_name_is_refused(archive: Path, tmp_path: Path, name: str) -> None:
    repacked(archive, lambda members: members.append((tarfile.TarInfo(name), b"x")))
    with pytest.raises(ArchiveError, match="which its manifest does not name"):
        KnowledgeBase(archive)
    assert not list(tmp_path.rglob("evil"))


def test_links_are_refused(archive: Path) -> None:
    def to_link(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        link = tarfile.TarInfo(members[2][0].name)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        members[2] = (link, b"")

    with pytest.raises(ArchiveError, match="which its manifest does not name"):
        KnowledgeBase(repacked(archive, to_link))


def test_a_manifest_that_leads_elsewhere_is_refused(archive: Path) -> None:
    def lead_out(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        manifest = json.loads(members[0][1])
        manifest["parts"]["corpus"]["folder"] = "../../outside"
        members[0] = (members[0][0], json.dumps(manifest).encode())

    with pytest.raises(ArchiveError, match=r"the folder '\.\./\.\./outside'"):
        KnowledgeBase(repacked(archive, lead_out))


def drop_last(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[-1]


def test_a_missing_file_and_another_order_are_refused(archive: Path) -> None:
    with pytest.raises(ArchiveError, match="1 of its files are missing"):
        KnowledgeBase(repacked(archive, drop_last))
    with pytest.raises(ArchiveError, match=r"begins with 'README\.md' instead of 'manifest\.json'"):
        KnowledgeBase(repacked(archive, lambda members: members.sort(key=lambda each: each[0].name)))


def test_other_files_and_addresses_are_refused_in_one_line(archive: Path, url: str) -> None:
    (archive.parent / "text.txt").write_text("no tar")
    with pytest.raises(ArchiveError, match="no archive of a knowledge base"):
        KnowledgeBase(archive.parent / "text.txt")
    with pytest.raises(ArchiveError, match="404"):
        KnowledgeBase(url.replace("kb.tar", "nothing.tar"))
    with pytest.raises(DeepEdError, match="with a secret in it"):
        KnowledgeBase("http://me:secret@127.0.0.1/kb.tar")
