"""A part appears whole or not at all, and says so when something is wrong with it."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.artifacts import ArtifactError, KnowledgeBase
from deeped_ray.types import DeepEdError


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    return KnowledgeBase(tmp_path / "kb", create=True)


def write_part(kb: KnowledgeBase, name: str = "pages", *, value: int = 1, parents: tuple[str, ...] = ()) -> None:
    with kb.write(name, config={"value": value}, parents=parents) as folder:
        np.save(folder / "numbers.npy", np.full(10, value))


def test_a_written_part_is_read_back_memory_mapped(kb: KnowledgeBase) -> None:
    write_part(kb, value=3)
    array = kb.open("pages").array("numbers")
    assert isinstance(array, np.memmap)
    assert array.tolist() == [3] * 10


def test_a_missing_part_names_the_job_that_makes_it(kb: KnowledgeBase) -> None:
    with pytest.raises(ArtifactError, match=r"No vectors part .* jobs/embed_entities\.py"):
        kb.open("vectors")


def test_a_missing_knowledge_base_names_the_first_job(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"jobs/build_corpus\.py"):
        KnowledgeBase(tmp_path / "nowhere")


def test_an_exception_while_writing_leaves_the_old_part(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    with pytest.raises(RuntimeError), kb.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
        raise RuntimeError
    assert kb.open("pages").array("numbers").tolist() == [1] * 10
    assert not list((kb.root / "parts").glob(".new-*"))


def _write_forever(root: Path) -> None:
    with KnowledgeBase(root).write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
        time.sleep(60)


def test_a_killed_writer_leaves_the_old_part_and_its_rubbish_is_removed(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    process = multiprocessing.get_context("spawn").Process(target=_write_forever, args=(kb.root,))
    process.start()
    deadline = time.monotonic() + 60
    while not list((kb.root / "parts").glob(".new-*/numbers.npy")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.pid is not None
    write_part(kb, "corpus")  # another writer leaves the living one's folder alone
    assert list((kb.root / "parts").glob(".new-*"))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert kb.open("pages").array("numbers").tolist() == [1] * 10
    write_part(kb, value=2)
    assert not list((kb.root / "parts").glob(".new-*"))
    assert kb.open("pages").array("numbers").tolist() == [2] * 10


def test_replacing_a_part_removes_the_old_one_from_disk_but_not_from_readers(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    old = kb.open("pages").array("numbers")
    write_part(kb, value=2)
    assert len(list((kb.root / "parts").glob("pages-*"))) == 1
    assert old.tolist() == [1] * 10


@pytest.mark.parametrize("damage", ["cut short", "flipped", "gone"])
def test_a_damaged_part_names_the_file_and_the_remedy(kb: KnowledgeBase, damage: str) -> None:
    write_part(kb)
    path = kb.open("pages").path / "numbers.npy"
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[-1] ^= 255
        path.write_bytes(content[:-5] if damage == "cut short" else content)
    with pytest.raises(ArtifactError, match=r"pages part .* damaged: numbers\.npy .*jobs/build_corpus\.py .* again"):
        kb.open("pages")
    assert kb.verify()["pages"] is not None
    write_part(kb)  # the same content again, though a damaged folder of that name is there
    assert kb.verify() == {"pages": None}


def test_a_part_made_from_an_older_parent_is_stale(kb: KnowledgeBase) -> None:
    write_part(kb, "pages", value=1)
    write_part(kb, "corpus", parents=("pages",))
    assert kb.is_current("corpus", config={"value": 1}, parents=["pages"])
    write_part(kb, "pages", value=2)
    assert not kb.is_current("corpus", config={"value": 1}, parents=["pages"])
    with pytest.raises(ArtifactError, match="older pages part"):
        kb.open("corpus")


def test_a_newer_format_is_refused(kb: KnowledgeBase) -> None:
    write_part(kb)
    path = kb.root / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(ArtifactError, match="format 99"):
        kb.open("pages")


def test_a_manifest_that_is_no_json_is_refused(kb: KnowledgeBase) -> None:
    (kb.root / "manifest.json").write_text("{")
    with pytest.raises(ArtifactError, match="not a manifest"):
        kb.open("pages")


def test_the_same_content_gets_the_same_id(tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        kb = KnowledgeBase(tmp_path / name, create=True)
        write_part(kb)
        ids.append(kb.open("pages").id)
    assert ids[0] == ids[1]


def test_a_knowledge_base_in_a_jobs_throw_away_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="absolute path"):
        KnowledgeBase(tmp_path / "working_dir_files" / "_ray_pkg_1" / "kb", create=True)
