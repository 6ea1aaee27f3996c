"""Files made to do harm: entities that expand, archives and titles that lead elsewhere, pages without an end."""

import bz2
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidump import DumpStats, read_dump
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.wned import MAX_ARCHIVE_BYTES
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.conftest import page_xml, write_dump

ROOT = Path(__file__).parent.parent
MEMORY_BYTES, CPU_SECONDS = 2**29, 60
GOOD = page_xml("Good", "text", page_id=7)

LAUGHS = '<!DOCTYPE m [<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))  # 2 TB
DECLARATIONS = {
    "laughs": (f"{LAUGHS}]>", "&a12;"),
    "quadratic": (f'<!DOCTYPE m [<!ENTITY a "{"x" * 50_000}">]>', "&a;" * 50_000),  # 2.5 GB
    "external": ('<!DOCTYPE m [<!ENTITY a SYSTEM "file:///etc/hostname">]>', "&a;"),
    "parameter": ('<!DOCTYPE m [<!ENTITY % a SYSTEM "file:///etc/hostname"> %a;]>', "text"),
    "external subset": ('<!DOCTYPE m SYSTEM "file:///etc/hostname">', "text"),
    "late": (f"<!--{' ' * 70_000}-->{LAUGHS}]>", "&a12;"),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    # cut before the first page, as Wikimedia cuts
    "streams": lambda xml: b"".join(map(bz2.compress, (xml[: xml.index(b"<page>")], xml[xml.index(b"<page>") :]))),
}

READ = (
    f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
"""
    + """
import json, sys
from pathlib import Path
from deeped_ray.corpus.wikidump import DumpStats, read_dump
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
for path in map(Path, sys.argv[1:]):
    stats = DumpStats()
    try:
        if path.suffix == ".dump":
            found = [page.title for page in read_dump(Location(path), stats)]
        else:
            found = [document.text for document in read_dataset(f"wned:{path}")]
        print(json.dumps({"found": found, "damage": stats.damage, "error": None}))
    except DeepEdError as error:
        print(json.dumps({"found": [], "damage": stats.damage, "error": str(error)}))
"""
)


def read_bounded(paths: list[Path]) -> list[dict[str, Any]]:
    """What reading the files gives, in a process that is killed if it takes much memory or time."""
    run = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # each would reserve memory
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return [json.loads(line) for line in run.stdout.splitlines()]


def dump_of(declaration: str, text: str) -> bytes:
    pages = GOOD + page_xml(text, text, page_id=8)
    return f'<?xml version="1.0"?>\n{declaration}<mediawiki version="0.11">{pages}</mediawiki>'.encode()


# -- XML


@pytest.mark.parametrize("packing", PACKED)
def test_a_dump_that_declares_entities_is_refused(tmp_path: Path, packing: str) -> None:
    paths = [tmp_path / f"{name}.dump" for name in DECLARATIONS]
    for path, declared in zip(paths, DECLARATIONS.values(), strict=True):
        path.write_bytes(PACKED[packing](dump_of(*declared)))
    for path, result in zip(paths, read_bounded(paths), strict=True):
        expected = "is not a MediaWiki dump" if path.stem == "late" else "declares a document type (<!DOCTYPE)"
        assert expected in (result["error"] or ""), (path.stem, result)


@pytest.mark.parametrize("packing", PACKED)
def test_a_document_type_between_pages_is_damage_and_nothing_expands(tmp_path: Path, packing: str) -> None:
    hidden = f"{GOOD}{LAUGHS}]>{page_xml('&a12;', '&a12;')}"
    undeclared = page_xml("&a12;", "&a12;")
    paths = [tmp_path / "hidden.dump", tmp_path / "undeclared.dump"]
    for path, pages in zip(paths, (hidden, undeclared), strict=True):
        path.write_bytes(PACKED[packing](f"<mediawiki>{pages}</mediawiki>".encode()))
    for result, found in zip(read_bounded(paths), (["Good"], []), strict=True):
        assert result["found"] == found
        assert any(word in result["damage"][0] for word in ("not well-formed", "undefined entity"))


def test_a_page_without_an_end_takes_bounded_memory_and_the_rest_is_read(tmp_path: Path) -> None:
    endless = b"<mediawiki>" + GOOD.encode() + b"<page><title>Endless</title><text>" + b"x" * 2**26
    rest = b"</text></page>" + page_xml("Rest", "text").encode() + b"</mediawiki>"
    paths = [tmp_path / f"{packing}.dump" for packing in ("gz", "bz2", "streams")]
    for path in paths:
        path.write_bytes(PACKED[path.stem](endless + rest))
    for result in read_bounded(paths):
        assert (result["found"], len(result["damage"])) == (["Good", "Rest"], 1)
        assert "a page of more than 16,777,216 bytes" in result["damage"][0]


def test_page_numbers_that_are_none_are_no_error(tmp_path: Path) -> None:
    pages = "".join(page_xml(f"P{n}", "x").replace("<id>1</id>", f"<id>{n}</id>", 1) for n in ("²", "9" * 5000, "-3"))
    found = list(read_dump(Location(write_dump(tmp_path / "dump.xml", pages)), DumpStats()))
    assert [page.page_id for page in found] == [-1, -1, -1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_annotations_that_declare_entities_are_refused(tmp_path: Path, encoding: str) -> None:
    paths = [tmp_path / name for name in DECLARATIONS]
    for path, (declaration, text) in zip(paths, DECLARATIONS.values(), strict=True):
        (path / "RawText").mkdir(parents=True)
        (path / "RawText" / "d").write_text("Bonn.")
        xml = f'{declaration}<x><document docName="d">{text}</document></x>'
        (path / "annotations.xml").write_bytes(xml.encode(encoding))
    for result in read_bounded(paths):
        assert "declares a document type (<!DOCTYPE) or is not in UTF-8" in (result["error"] or ""), result


# -- archives


def write_archive(path: Path, *members: tuple[str, bytes | tarfile.TarInfo]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return f"wned:{path}"


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def xml_of(name: str) -> bytes:
    return f'<x><document docName="{name}"></document></x>'.encode()


@pytest.mark.parametrize("name", ["d", "../d", "../../outside/d", "/outside/d"])
def test_names_of_an_archive_are_names_and_nothing_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    spec = write_archive(
        tmp_path / "s.tar.gz", ("s/s.xml", xml_of("d")), ("s/RawText/d", b"inside"), (f"s/RawText/{name}x", b"outside")
    )
    before = sorted(tmp_path.rglob("*"))
    assert [document.text for document in read_dataset(spec)] == ["inside"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("folder", ["../s", "/s", "a/../../s"])
def test_an_archive_whose_folder_lies_outside_is_read_from_the_archive_alone(tmp_path: Path, folder: str) -> None:
    (tmp_path / "s" / "RawText").mkdir(parents=True)
    (tmp_path / "s" / "RawText" / "d").write_text("from the disk")
    members = ((f"{folder}/s.xml", xml_of("d")), (f"{folder}/RawText/d", b"from the archive"))
    (document,) = read_dataset(write_archive(tmp_path / "s.tar.gz", *members))
    assert document.text == "from the archive"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_of_an_archive_are_not_followed(tmp_path: Path, kind: bytes) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    for target in (str(secret), "../secret", "s.xml"):
        spec = write_archive(tmp_path / "s.tar.gz", ("s/s.xml", xml_of("d")), ("s/RawText/d", link(kind, target)))
        with pytest.raises(DeepEdError, match="names a document 'd' that is not in RawText"):
            read_dataset(spec)


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", "d/../../../secret", "\u2028", "x" * 5000])
def test_documents_that_annotations_name_are_no_paths(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("hunter2")
    folder = tmp_path / "a" / "s"
    (folder / "RawText").mkdir(parents=True)
    (folder / "s.xml").write_bytes(xml_of(name))
    with pytest.raises(DeepEdError, match="that is not in RawText"):
        read_dataset(f"wned:{folder}")


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("s/RawText/d")
    info.size = MAX_ARCHIVE_BYTES + 1
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress(info.tobuf()))
    with pytest.raises(DeepEdError, match="unpacks to more than"):
        read_dataset(f"wned:{tmp_path / 's.tar.gz'}")


def test_an_archive_that_leads_backwards_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("s/RawText/d")
    info.size = -1024
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(DeepEdError, match="is not a tar archive"):
        read_dataset(f"wned:{tmp_path / 's.tar.gz'}")


# -- titles and names of runs

TITLES = ["../../../evil", "/etc/passwd", "..", ".", "a/b/../c", "C:\\evil", "x" * 5000, "%2e%2e%2fevil", "~", "$(id)"]


def files_below(folder: Path) -> set[str]:
    return {
        "/".join(part.rpartition("-")[0] if part.startswith(("pages-", "corpus-")) and "." not in part else part
                 for part in path.relative_to(folder).parts)
        for path in folder.rglob("*")
    }  # fmt: skip


def test_titles_never_become_file_names(local_ray_session: None, tmp_path: Path) -> None:
    written = {}
    for name, titles in {"tame": [f"Title {n}" for n in range(len(TITLES))], "wild": TITLES}.items():
        folder = tmp_path / name / "deep" / "deeper"
        folder.mkdir(parents=True)
        pages = "".join(
            page_xml(title, f"Text of [[{titles[n - 1]}]] and [[{title}|name]]", page_id=n + 1)
            for n, title in enumerate(titles)
        )
        kb = KnowledgeBase(folder / "kb", create=True)
        dump = write_dump(folder / "dump.xml", pages)
        build_corpus(kb, CorpusConfig(dump=(str(dump),), min_word_count=1, min_links_without_page=0, partitions=2))
        written[name] = files_below(tmp_path / name)
        catalogue = Catalogue(kb.open("corpus"))
        assert all(catalogue.find(title) is not None for title in titles if title != "..")
    assert written["wild"] == written["tame"]


def test_a_title_with_a_nul_is_no_xml_and_so_damage(tmp_path: Path) -> None:
    stats = DumpStats()
    for nul in ("\0", "&#0;"):
        assert list(read_dump(Location(write_dump(tmp_path / "dump.xml", page_xml(f"a{nul}b", "x"))), stats)) == []
    assert len(stats.damage) == 2


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "/x", "a/b", "a/..", "a\0b"])
def test_a_run_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(DeepEdError, match="must be a plain name"):
        ResumeConfig(run_name=name)
