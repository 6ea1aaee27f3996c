"""The one loop: order, resumption, lost workers, and orphans of a killed driver."""

import os
import signal
import threading
from pathlib import Path

import pytest

from deeped_ray.running import tasks
from deeped_ray.running.faults import Faults, reached
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError


@pytest.fixture
def work(tmp_path: Path) -> Location:
    return Location(tmp_path / "work")


def square(number: int, folder: Path) -> int:
    """A task that leaves a trace of every time it runs."""
    with open(folder / f"ran-{number}", "a") as trace:
        trace.write(".")
    return number * number


def runs_of(folder: Path, number: int) -> int:
    trace = folder / f"ran-{number}"
    return len(trace.read_text()) if trace.exists() else 0


def test_results_come_in_the_order_of_the_items(local_ray_session: None, tmp_path: Path) -> None:
    outcome = tasks.run("square", square, [3, 1, 2], tmp_path)
    assert outcome.results == [9, 1, 4]
    assert outcome.num_skipped == 0
    assert outcome.peak_gib > 0


def test_a_second_run_reads_receipts_and_runs_only_what_is_missing(
    local_ray_session: None, work: Location, tmp_path: Path
) -> None:
    tasks.run("square", square, [1, 2, 3], tmp_path, work=work)
    (work / "receipts" / "square-000001.json").remove()
    outcome = tasks.run("square", square, [1, 2, 3], tmp_path, work=work)
    assert (outcome.results, outcome.num_skipped) == ([1, 4, 9], 2)
    assert [runs_of(tmp_path, number) for number in (1, 2, 3)] == [1, 2, 1]


def test_a_receipt_of_an_orphan_whose_folder_was_removed_does_not_count(
    local_ray_session: None, work: Location, tmp_path: Path
) -> None:
    orphan = tasks._Receipts(work, "square")
    work.remove()
    (work / "receipts").make_folder()
    orphan.write(0, 77)  # the killed driver's last task, after a rerun has ended and removed everything
    assert tasks.run("square", square, [2], tmp_path, work=work).results == [4]


def test_stages_that_share_a_folder_keep_their_receipts_apart(
    local_ray_session: None, work: Location, tmp_path: Path
) -> None:
    tasks.run("square", square, [2], tmp_path, work=work)
    assert tasks.run("again", square, [3], tmp_path, work=work).results == [9]


def die_once(path: Path) -> str:
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def test_a_lost_worker_costs_only_its_task(local_ray_session: None, tmp_path: Path) -> None:
    assert tasks.run("die", die_once, [tmp_path / "a", tmp_path / "b"]).results == ["a", "b"]


def die(name: str) -> str:
    if name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def test_after_a_crash_the_caller_says_what_to_run_instead(local_ray_session: None) -> None:
    told: list[tuple[str, str]] = []

    def instead(item: str, why: str) -> str:
        told.append((item, why))
        return "harmless"

    assert tasks.run("die", die, ["deadly", "good"], after_crash=instead).results == ["harmless", "good"]
    assert told[0][0] == "deadly"


def refuse(_: int) -> None:
    raise DeepEdError("The dump is damaged. Fetch it again.")


def test_a_users_error_in_a_task_stays_one_line(local_ray_session: None) -> None:
    with pytest.raises(DeepEdError, match=r"^The dump is damaged\. Fetch it again\.$"):
        tasks.run("refuse", refuse, [1])


def test_no_items_need_no_ray() -> None:
    assert tasks.run("nothing", square, []).results == []


def test_a_process_waits_at_an_armed_point_until_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(tmp_path / "faults")
    monkeypatch.setenv(*next(iter(faults.environment.items())))
    faults.arm("parse/3")
    thread = threading.Thread(target=reached, args=("parse/3",))
    thread.start()
    assert faults.wait("parse/3") == os.getpid()
    assert thread.is_alive()
    faults.release("parse/3")
    thread.join(10)
    assert not thread.is_alive()
    reached("parse/3")  # not armed any more
