"""What a killed driver left on the cluster is freed by the next run of the same fit, and nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from deeped_ray.storage.location import Location
from deeped_ray.training.leftovers import DRIVER, free, freed

# `detached` stands for a group that Ray did not free: it outlives its driver every time, not once in a hundred times
LEAVES_A_GROUP = """
import sys, ray
from ray.util.placement_group import placement_group
from deeped_ray.storage.location import Location
from deeped_ray.training.leftovers import freed

ray.init(address=sys.argv[1], log_to_driver=False)
with freed(Location(sys.argv[2])):
    group = placement_group([{"CPU": 0.01}], lifetime="detached")
    ray.get(group.ready())
    print(group.id.hex())
"""


@pytest.fixture
def left(local_ray_session: None, tmp_path: Path) -> str:
    """The group of a run in `tmp_path` whose driver is gone."""
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", LEAVES_A_GROUP, address, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env={**os.environ})
    return done.stdout.splitlines()[-1]


def state(group: str) -> str:
    return str(placement_group_table()[group]["state"])


def test_the_next_run_frees_what_the_last_driver_left(left: str, tmp_path: Path) -> None:
    ours: PlacementGroup = placement_group([{"CPU": 0.01}])
    ray.get(ours.ready())
    assert state(left) == "CREATED"
    with freed(Location(tmp_path)):
        pass
    assert (state(left), state(ours.id.hex())) == ("REMOVED", "CREATED")
    remove_placement_group(ours)


def test_a_driver_of_another_cluster_is_left_alone(left: str, tmp_path: Path) -> None:
    driver = Location(tmp_path) / DRIVER
    job = driver.read_json()["job"]
    driver.write_json({"head": "another", "job": job})
    with freed(Location(tmp_path)):
        pass
    assert state(left) == "CREATED"
    free(job)
    assert state(left) == "REMOVED"
