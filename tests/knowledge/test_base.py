"""A part appears whole or not at all, and says so when something is wrong with it."""

import json
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from deeped_ray.knowledge import parts
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, FormatError, checksum_of
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError
from tests.faults.test_writers import writing


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


def test_a_killed_writer_leaves_the_old_part_and_its_rubbish_is_removed(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    with writing(kb) as writer:
        assert list((kb.root / "parts").glob(".new-*"))
        writer.kill()
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
    with pytest.raises(
        ArtifactError, match=r"pages part .* damaged: numbers\.npy .* delete it and run jobs/build_corpus\.py"
    ):
        kb.open("pages")
    assert kb.verify()["pages"] is not None
    write_part(kb)  # the same content again, though a damaged folder of that name is there
    assert kb.verify() == {"pages": None}


def test_a_file_is_hashed_once_until_it_changes(kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    write_part(kb)
    counted = mock.Mock(side_effect=checksum_of)
    monkeypatch.setattr(parts, "checksum_of", counted)
    path = kb.open("pages").path / "numbers.npy"
    kb.open("pages")
    assert counted.call_count == 1
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(1, 1))  # a clock that stands still shows no change of the same second
    with pytest.raises(ArtifactError, match="does not match its checksum"):
        kb.open("pages")


def test_a_part_made_from_an_older_parent_is_stale(kb: KnowledgeBase) -> None:
    write_part(kb, "pages", value=1)
    write_part(kb, "corpus", parents=("pages",))
    assert kb.is_current("corpus", config={"value": 1}, parents=["pages"])
    write_part(kb, "pages", value=2)
    assert not kb.is_current("corpus", config={"value": 1}, parents=["pages"])
    with pytest.raises(ArtifactError, match="older pages part"):
        kb.open("corpus")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"format": 99, "parts": {"pages": {}}}, r"\(pages\) have format 99"),
        ({"format": 1}, "not a manifest"),
        ("{", "not a manifest"),
    ],
)
def test_a_manifest_of_another_format_is_refused_before_any_work(
    kb: KnowledgeBase, manifest: object, message: str
) -> None:
    write_part(kb)
    (kb.root / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    with pytest.raises(FormatError, match=message):
        kb.open("pages")
    with pytest.raises(FormatError, match=message):
        kb.is_current("pages", config={}, parents=[])
    with pytest.raises(FormatError, match=message), kb.write("pages", config={}, parents=()):
        pytest.fail("work was begun")


def test_a_part_is_refused_if_its_parent_changed_while_it_was_made(kb: KnowledgeBase) -> None:
    write_part(kb, "pages", value=1)
    with (
        pytest.raises(ArtifactError, match=r"pages part .* changed while the corpus part"),
        kb.write("corpus", config={}, parents=["pages"]) as folder,
    ):
        np.save(folder / "numbers.npy", np.zeros(1))
        manifest = kb.manifest()
        another = {"id": "0" * 16, "folder": f"parts/pages-{'0' * 16}"}
        manifest["parts"]["pages"] |= another  # by a program that does not ask who else writes
        (kb.root / "manifest.json").write_text(json.dumps(manifest))
    assert "corpus" not in kb


def test_folders_that_no_manifest_names_are_removed(kb: KnowledgeBase) -> None:
    write_part(kb)
    (kb.root / "parts" / "pages-0123456789abcdef").mkdir()  # a writer killed between rename and manifest
    write_part(kb, "corpus")
    assert {path.name.split("-")[0] for path in (kb.root / "parts").iterdir()} == {"pages", "corpus"}
    assert len(list((kb.root / "parts").iterdir())) == 2


@pytest.mark.parametrize("name", [".", "..", "a/b", ""])
def test_a_run_name_must_be_one_folder(name: str) -> None:
    with pytest.raises(DeepEdError, match="--run-name"):
        ResumeConfig(run_name=name)


def test_runs_of_different_work_have_different_folders(kb: KnowledgeBase, tmp_path: Path) -> None:
    resume = ResumeConfig(storage_path=str(tmp_path), run_name="mine")
    assert resume.folder(kb, "embed", [1]) == resume.folder(kb, "embed", [1]) != resume.folder(kb, "embed", [2])
    assert resume.folder(kb, "embed", [1]).parent == Location(tmp_path / "mine")


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
