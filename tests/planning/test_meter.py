"""What work costs: processes that have ended count, and so does what a folder held for a while."""

import subprocess
import sys
import time
from pathlib import Path

from deeped_ray.planning.meter import Meter, folder_bytes, probe

BURN = "import sys, time\nwhile time.process_time() < 0.6: pass\nprint(flush=True); sys.stdin.read()"


def wait_for_a_look(meter: Meter) -> None:
    """The meter does its fixed piece of work with every look."""
    seen = len(meter._probes)
    while len(meter._probes) < seen + 2:
        time.sleep(0.01)


def test_a_process_that_has_ended_still_counts() -> None:
    with Meter() as meter:
        with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            wait_for_a_look(meter)
            process.communicate()
        wait_for_a_look(meter)
    assert meter.cost.ray_s > 0.5  # the tests' own Ray may add to it


def test_work_of_this_process_is_the_drivers() -> None:
    with Meter() as meter:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
    assert meter.cost.driver_s > 0.3
    assert meter.cost.core_s == meter.cost.driver_s + meter.cost.worker_s
    assert 0.01 < meter.cost.driver_gib < 100
    assert 0.0005 < meter.cost.probe_s < 0.5


def test_the_most_that_a_folder_held_is_kept(tmp_path: Path) -> None:
    with Meter(tmp_path) as meter:
        (tmp_path / "large").write_bytes(bytes(3_000_000))
        wait_for_a_look(meter)
        (tmp_path / "large").unlink()
    assert meter.cost.disk_mb == 3.0


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert folder_bytes(tmp_path) == 1000


def test_the_probe_is_a_fixed_piece_of_work() -> None:
    times = sorted(probe() for _ in range(5))
    assert 0 < times[0] <= times[2] < 20 * times[0]
