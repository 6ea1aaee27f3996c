"""What a node says of a folder; `tests/faults/test_storage.py` asks a real second node."""

from pathlib import Path

from deeped_ray.running.reach import trouble_with
from deeped_ray.storage.location import Location
from tests.s3 import S3, prefix


def marked(folder: Location, content: str = "token") -> Location:
    mark = folder / ".reach-token"
    mark.write_bytes(content.encode())
    return mark


def test_a_folder_that_is_shared_is_no_trouble(tmp_path: Path) -> None:
    assert trouble_with(marked(Location(tmp_path)), "token") == ""
    assert [file.name for file in tmp_path.iterdir()] == [".reach-token"]


def test_a_bucket_is_no_trouble(s3: S3) -> None:
    assert trouble_with(marked(Location(prefix("reach"))), "token") == ""


def test_a_folder_of_this_node_alone_is_told(tmp_path: Path) -> None:
    assert "there is no .reach-token" in trouble_with(Location(tmp_path / "elsewhere" / ".reach-token"), "token")


def test_a_folder_of_the_same_name_is_told(tmp_path: Path) -> None:
    assert "something else" in trouble_with(marked(Location(tmp_path), "another"), "token")


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A file where the folder should be: who runs tests as root may write into read-only folders."""
    (tmp_path / "blocked").write_text("")
    assert trouble_with(Location(tmp_path / "blocked" / ".reach-token"), "token") != ""
