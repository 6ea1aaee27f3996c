"""The same files on a disk and behind a real S3 API."""

import os
import pickle
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.knowledge.parts import ArtifactError, Sealed, seal
from deeped_ray.storage.location import Location, StorageError
from deeped_ray.types import DeepEdError
from tests.s3 import S3, prefix


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("deeped_ray.storage.lease._SETTLE_S", 0.0)  # nobody else writes here


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPED_STORAGE_PATIENCE_S", "0.5")
    monkeypatch.setenv("DEEPED_LEASE_S", "0.2")  # the next writer waits for the lease that could not be given back


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, quick: None) -> Location:
    if request.param == "disk":
        return Location(tmp_path / "folder")
    request.getfixturevalue("s3")
    return Location(prefix("folder"))


def test_a_file_is_read_as_it_was_written(folder: Location) -> None:
    folder.make_folder()
    file = folder / "a.json"
    assert not file.exists()
    file.write_json({"a": 1})
    assert file.read_json() == {"a": 1}
    assert file.num_bytes() == 8
    assert file.read_bytes(1, 4) == b'"a"'
    assert file.local().read_text() == '{"a": 1}'
    assert pickle.loads(pickle.dumps(file)) == file
    assert fingerprint(file)["bytes"] == 8


def test_a_file_written_again_is_fetched_again(folder: Location) -> None:
    folder.make_folder()
    for content in (b"first", b"second!"):
        (folder / "a").write_bytes(content)
        assert (folder / "a").local().read_bytes() == content


def test_what_raises_while_it_is_written_leaves_nothing(folder: Location) -> None:
    folder.make_folder()
    (folder / "old").write_bytes(b"as it was")
    with pytest.raises(ZeroDivisionError), (folder / "old").writing() as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert (folder / "old").read_bytes() == b"as it was"
    assert folder.sizes() == {"old": 9}
    assert folder.children() == ["old"]


def test_files_below_are_listed_and_matched(folder: Location) -> None:
    with pytest.raises(FileNotFoundError):
        (folder / "nothing").num_bytes()
    folder.make_folder()
    (folder / "sub").make_folder()
    for name in ("b-2.x", "b-1.x", "c.x", "sub/b-3.x", ".b-4.x"):
        (folder / name).write_bytes(name.encode())
    assert [file.name for file in folder.glob("b-*.x")] == ["b-1.x", "b-2.x"]
    assert set(folder.sizes()) == {"b-1.x", "b-2.x", "c.x", "sub/b-3.x"}
    with folder.fetched() as path:
        assert (path / "sub" / "b-3.x").read_text() == "sub/b-3.x"
    folder.remove()
    folder.remove()
    assert folder.sizes() == {}


def test_an_orphan_cannot_write_into_a_folder_that_is_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Location(tmp_path / "run")
    (folder / "receipts").make_folder()
    refused: list[str] = []

    def remove_late(path: Path) -> None:
        """The orphan writes at the worst moment: its folder is about to be emptied."""
        try:
            (folder / "receipts" / "late").write_bytes(b"x")
        except FileNotFoundError as error:
            refused.append(str(error.filename))
        rmtree(path)

    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", remove_late)
    folder.remove()
    assert len(refused) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_filled_folder_hands_over_its_files(folder: Location) -> None:
    folder.make_folder()
    with folder.filling() as path:
        np.save(path / "a.npy", np.arange(3))
    assert np.load((folder / "a.npy").local()).tolist() == [0, 1, 2]
    assert folder.children() == ["a.npy"]


@pytest.mark.parametrize("limit", [2**30, 0])
def test_a_copy_is_made_by_the_storage_if_it_can(folder: Location, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.make_folder()
    (folder / "a").write_bytes(b"content")
    monkeypatch.setattr("deeped_ray.storage.location._COPIED_AT_ONCE", limit)
    with monkeypatch.context() as patch:
        if limit:
            patch.setattr(Location, "fetch", None)
        (folder / "a").copy(folder / "b")
    assert (folder / "b").read_bytes() == b"content"


def test_secrets_do_not_belong_into_addresses() -> None:
    for address in ("s3://key:secret@bucket/kb", "s3://bucket/kb?secret_key=x", "s3://bucket/kb?access_key=x"):
        with pytest.raises(DeepEdError, match="environment") as error:
            Location(address)
        assert "key" not in str(error.value).replace("Give credentials", "")


def test_an_unknown_kind_of_storage_is_named(quick: None) -> None:
    with pytest.raises(DeepEdError, match=r"Cannot use nonsense://.* Expected a path, s3://"):
        Location("nonsense://bucket/x").exists()


def test_a_bucket_that_is_not_there_is_not_waited_for(s3: S3, quick: None) -> None:
    with pytest.raises(StorageError, match="no-such-bucket"):
        Location("s3://no-such-bucket/x").write_bytes(b"1")


def test_storage_that_fails_now_and_then_is_asked_again(s3: S3, quick: None) -> None:
    folder = Location(prefix("flaky"))
    with s3.failing(0.5):
        before = s3.num_failed
        for number in range(4):
            (folder / str(number)).write_bytes(bytes(number))
        assert [(folder / str(number)).num_bytes() for number in range(4)] == [0, 1, 2, 3]
        assert s3.num_failed > before


def test_storage_that_fails_for_good_is_a_clear_error(s3: S3, quick: None, impatient: None) -> None:
    file = Location(prefix("dead")) / "a"
    file.write_bytes(b"kept")
    with (
        s3.gone(),
        pytest.raises(StorageError, match=rf"Cannot write {file}: .*run the same command when the storage is there"),
    ):
        file.write_bytes(b"lost")
    assert file.read_bytes() == b"kept"


# -- a knowledge base there


@pytest.fixture
def kb(s3: S3, quick: None) -> KnowledgeBase:
    return KnowledgeBase(prefix("kb"), create=True)


def write_part(kb: KnowledgeBase, name: str = "pages", *, value: int = 1) -> None:
    with kb.write(name, config={"value": value}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.full(10, value))
        (folder / "seeds").mkdir()
        (folder / "seeds" / "x").write_text("x")


def test_a_part_is_fetched_once_per_node_and_mapped(kb: KnowledgeBase, s3: S3) -> None:
    write_part(kb)
    part = kb.open("pages")
    first = part.array("numbers")
    assert isinstance(first, np.memmap)
    requests = s3.num_requests
    again = pickle.loads(pickle.dumps(part))
    assert again.array("numbers").tolist() == [1] * 10
    assert (again.path / "seeds" / "x").read_text() == "x"
    assert s3.num_requests <= requests + 2  # only the file that was not here yet
    assert kb.verify() == {"pages": None}


def test_a_new_version_replaces_the_old(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    old = kb.open("pages").array("numbers")
    write_part(kb, value=2)
    assert old.tolist() == [1] * 10
    assert kb.open("pages").array("numbers").tolist() == [2] * 10
    assert len((kb.location / "parts").children()) == 1


def test_a_file_that_arrives_damaged_is_not_used(kb: KnowledgeBase) -> None:
    write_part(kb)
    part = kb.open("pages")
    file = part.location / "numbers.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ArtifactError, match="does not match its checksum"):
        part.array("numbers")
    assert kb.verify() == {"pages": "numbers.npy does not match its checksum"}


def test_the_same_part_has_the_same_id_on_disk(kb: KnowledgeBase, tmp_path: Path) -> None:
    local = KnowledgeBase(tmp_path / "kb", create=True)
    write_part(kb)
    write_part(local)
    assert kb.open("pages").id == local.open("pages").id


def test_a_sealed_file_becomes_part_without_passing_through_the_writer(
    kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_part(kb)
    folders = [Location(prefix("run")), Location(tmp_path / "run")]
    ids = [kb.open("pages").id]
    for work, home in zip(folders, (kb, KnowledgeBase(tmp_path / "kb", create=True)), strict=True):
        work.make_folder()
        with work.filling() as made:
            np.save(made / "numbers.npy", np.full(10, 1))
        with monkeypatch.context() as patch, home.write("pages", config={}, parents=()) as folder:
            home.include({"numbers.npy": Sealed(work / "numbers.npy", seal(work / "numbers.npy"))})
            (folder / "seeds").mkdir()
            (folder / "seeds" / "x").write_text("x")
            patch.setattr(Location, "fetch", None)
        ids.append(home.open("pages").id)
        assert home.verify() == {"pages": None}
    assert ids == ids[:1] * 3


def test_a_part_whose_storage_fails_for_good_leaves_the_old_one(kb: KnowledgeBase, s3: S3, impatient: None) -> None:
    write_part(kb, value=1)
    with ExitStack() as later, pytest.raises(StorageError), kb.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
        later.enter_context(s3.gone())
    assert kb.open("pages").array("numbers").tolist() == [1] * 10
    write_part(kb, value=2)
    assert kb.open("pages").array("numbers").tolist() == [2] * 10


def test_a_part_that_was_replaced_while_it_was_read_is_told(kb: KnowledgeBase) -> None:
    write_part(kb, value=1)
    part = kb.open("pages")
    write_part(kb, value=2)
    with pytest.raises(ArtifactError, match="was replaced while it was read"):
        part.array("numbers")


def test_a_node_forgets_what_nobody_asks_for(kb: KnowledgeBase) -> None:
    write_part(kb, "pages")
    old = kb.open("pages").path
    week = 8 * 86400
    os.utime(old, (old.stat().st_atime - week, old.stat().st_mtime - week))
    write_part(kb, "corpus", value=3)
    assert kb.open("corpus").path.exists()
    assert not old.exists()
