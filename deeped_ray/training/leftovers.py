"""Frees what a killed driver left on the cluster, so that the next run of the same fit does not wait for it.

Ray frees the resources of a job when its driver dies. But Ray Train's controller may outlive the driver, and its worker,
by a moment: it then asks for resources for another worker, in the name of a job that Ray has already cleaned up. Nobody
frees these. A rerun that needs them would wait forever.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from deeped_ray.storage.location import Location

logger = logging.getLogger(__name__)
DRIVER = "driver.json"
"""In the folder of a run: the last driver that worked on it, and the head of its cluster, which numbers drivers."""
CHECK_S = 1.0


@contextlib.contextmanager
def freed(run: Location) -> Iterator[None]:
    """Meanwhile, nothing is kept for the run's last driver. The caller has the right to write, so that one is gone."""
    last, ours = _driver(run), {"head": _head(), "job": ray.get_runtime_context().get_job_id()}
    (run / DRIVER).write_json(ours)
    if last is None or last["head"] != ours["head"] or last["job"] == ours["job"]:
        yield
        return
    is_over = threading.Event()

    def keep_freeing() -> None:
        free(last["job"])
        while not is_over.wait(CHECK_S):
            free(last["job"])

    thread = threading.Thread(target=keep_freeing, name="leftovers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def free(job: str) -> None:
    """Remove the placement groups of a job. Their ids end with the job's."""
    for group, known in placement_group_table().items():
        if group.endswith(job) and known["state"] != "REMOVED":
            logger.warning("freeing %s, left by a run that was killed", known["bundles"])
            remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(group))))


def _driver(run: Location) -> dict[str, str] | None:
    file = run / DRIVER
    return file.read_json() if file.exists() else None


def _head() -> str:
    heads = [node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
    return str(heads[0]) if heads else ""
