import math
from pathlib import Path

import pytest

from deeped_ray.planning.room import Room, require_room, room_for
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """As large as the English Wikipedia, and a hole."""
    file = tmp_path / "enwiki-pages-articles.xml.bz2"
    with open(file, "wb") as handle:
        handle.truncate(22 * 10**9)
    return str(file)


def test_a_disk_that_is_too_small_is_refused_with_what_it_takes(tmp_path: Path, dump: str) -> None:
    with pytest.raises(
        DeepEdError, match=r"has 10\.0 GB of disk left, and ingest of 22\.0 GB of dump takes at least \d+"
    ):
        require_room(Location(tmp_path / "kb"), (dump,), Room(memory_gib=1000, disk_gb=10))


def test_a_head_that_is_too_small_is_refused(tmp_path: Path, dump: str) -> None:
    with pytest.raises(DeepEdError, match=r"has 0\.1 GiB of memory, and the driver of ingest takes at least"):
        require_room(Location(tmp_path / "kb"), (dump,), Room(memory_gib=0.1, disk_gb=math.inf))


def test_room_enough_is_no_error(tmp_path: Path, dump: str) -> None:
    require_room(Location(tmp_path / "kb"), (dump,), Room(memory_gib=1000, disk_gb=10_000))
    require_room(Location(tmp_path / "kb"), (), Room(memory_gib=0, disk_gb=0))


def test_what_an_unfinished_run_has_written_counts_as_room(tmp_path: Path) -> None:
    kb = Location(tmp_path / "kb")
    before = room_for(kb)
    (kb / "runs" / "ingest").make_folder()
    (kb / "runs" / "ingest" / "pages").write_bytes(bytes(5 * 10**7))
    after = room_for(kb)
    assert before.disk_gb - after.disk_gb < 0.04 or after.disk_gb > before.disk_gb
    assert room_for(Location("s3://bucket/kb")).disk_gb == math.inf
