"""The log of changes: durable, ordered alike for all readers, without locks."""

import itertools
import threading
from pathlib import Path

import pytest

from deeped_ray.knowledge.changes import Change, ChangeLog, Changes, Recorded
from deeped_ray.storage.location import Location, StorageError, patience
from deeped_ray.types import DeepEdError
from tests.s3 import S3, prefix


def put(name: str, **entity: str) -> Change:
    return Change(name, {"id": name, **entity})


@pytest.fixture(params=["disk", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return Location(prefix("changes"))
    return Location(tmp_path)


def test_what_one_writes_another_reads_once(root: Location) -> None:
    writer, reader = ChangeLog(root), ChangeLog(root)
    writer.append([put("A"), Change("B", None)])
    assert [each.change for each in reader.read_new()] == [put("A"), Change("B", None)]
    assert reader.read_new() == []
    assert writer.read_new() == []


def test_a_later_writer_takes_a_higher_number(root: Location) -> None:
    first, second = ChangeLog(root), ChangeLog(root)
    numbers = [log.append([put("A")])[0].number for log in (first, second, first)]
    assert numbers == [1, 2, 3]


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    logs = [ChangeLog(Location(tmp_path)) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda log=log, place=place: [log.append([put(f"{place}.{i}")]) for i in range(10)])
        for place, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ChangeLog(Location(tmp_path)).read_new()
    assert {each.change.id for each in found} == {f"{place}.{i}" for place in range(4) for i in range(10)}


def test_of_changes_to_one_entity_the_last_holds_in_any_order_of_arrival() -> None:
    rows = [
        Recorded("000000000001-aaaaaaaa.json", put("A", title="one"), ""),
        Recorded("000000000002-aaaaaaaa.json", put("A", title="two"), ""),
        Recorded("000000000002-bbbbbbbb.json", put("A", title="three"), ""),
    ]
    states = []
    for order in itertools.permutations(rows):
        changes = Changes()
        for each in order:
            changes.apply([each])
        states.append((changes.latest["A"].change.entity, changes.version))
    assert states == [(put("A", title="three").entity, states[0][1])] * 6


def test_the_version_tells_states_apart() -> None:
    changes = Changes()
    versions = [changes.version]
    for number in (1, 2):
        changes.apply([Recorded(f"{number:012d}-aaaaaaaa.json", put("A"), "")])
        versions.append(changes.version)
    assert versions[0] == "0"
    assert len({*versions}) == 3


def test_of_one_file_the_later_row_holds(tmp_path: Path) -> None:
    changes = Changes()
    changes.apply(ChangeLog(Location(tmp_path)).append([put("A"), Change("A", None)]))
    assert changes.latest["A"].change.entity is None


def test_changes_since_a_number(tmp_path: Path) -> None:
    log, changes = ChangeLog(Location(tmp_path)), Changes()
    for name in ("A", "B", "C"):
        changes.apply(log.append([put(name)]))
    assert [each.change.id for each in changes.since(2)] == ["B", "C"]


def test_what_a_killed_writer_left_half_written_is_not_read(tmp_path: Path) -> None:
    log = ChangeLog(Location(tmp_path))
    log.append([put("A")])
    (tmp_path / "changes" / ".000000000002-aaaaaaaa.json.0123").write_text('{"time": "", "chan')
    assert [each.change.id for each in ChangeLog(Location(tmp_path)).read_new()] == ["A"]


def test_while_s3_is_away_a_writer_hears_of_it_soon_and_nothing_is_written(s3: S3) -> None:
    root = Location(prefix("changes"))
    log = ChangeLog(root)
    log.append([put("A")])
    with s3.gone(), patience(0.5), pytest.raises(StorageError):
        log.append([put("B")])
    assert [each.change.id for each in ChangeLog(root).read_new()] == ["A"]
    assert log.append([put("B")])[0].number == 2


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    ChangeLog(Location(tmp_path)).append([put("A")])
    (tmp_path / "changes" / "000000000002-aaaaaaaa.json").write_text("{")
    with pytest.raises(DeepEdError, match=r"000000000002-aaaaaaaa.json is not a file of changes"):
        ChangeLog(Location(tmp_path)).read_new()
