"""Several real raylets on one machine, jobs on them, and ways to lose each of these at a named point."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ray._private.node import Node
from ray.cluster_utils import Cluster

from deeped_ray.running.faults import Faults
from deeped_ray.running.local_ray import descendants, living

ROOT = Path(__file__).parent.parent.parent
# A raylet that is gone refuses connections and is given up after 1.5 s; one that is merely slow has the default 10 s.
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
STORE_BYTES = 100 * 2**20
PATIENCE_S = 240
"""For whatever a healthy machine does within 20 s, so that a slow one passes too."""


class Nodes:
    """A head with one CPU, nodes that come and go, and jobs that are processes of their own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.faults = Faults(folder / "faults")
        self._environment = {**environment, **self.faults.environment}
        self._caches = folder / "caches"
        self._jobs: list[subprocess.Popen[str]] = []
        self._cluster = Cluster()
        self._head = self._add(1, include_dashboard=False, _system_config=QUICK_TO_NOTICE)

    @property
    def address(self) -> str:
        address: str = self._cluster.address
        return address

    def _add(self, num_cpus: int, **options: object) -> Node:
        cache = self._caches / str(len(self._cluster.list_all_nodes()))
        node: Node = self._cluster.add_node(
            wait=False,
            num_cpus=num_cpus,
            object_store_memory=STORE_BYTES,
            env_vars={**self._environment, "DEEPED_CACHE": str(cache)},
            **options,
        )
        self._cluster.wait_for_nodes(timeout=PATIENCE_S)
        return node

    def add(self, *, num_cpus: int = 1) -> Node:
        return self._add(num_cpus)

    def lose(self, node: Node) -> None:
        """SIGKILL to its raylet; the workers there die with it, and the rest of the cluster finds out by itself."""
        os.kill(_raylet(node), signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def start(self, job: str, *options: str, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """`python jobs/<job>.py` on this cluster."""
        process = subprocess.Popen(
            [sys.executable, f"jobs/{job}.py", *options],
            cwd=ROOT,
            env={
                **os.environ,
                **self._environment,
                "DEEPED_CACHE": str(self._caches / "driver"),
                "RAY_ADDRESS": self.address,
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._jobs.append(process)
        return process

    def node_of(self, worker: int) -> Node:
        return next(node for node in self._cluster.list_all_nodes() if worker in descendants(_raylet(node)))

    def kill_driver(self, job: "subprocess.Popen[str]", *, orphan: int) -> None:
        """SIGKILL; returns when Ray has ended the worker that was held for it."""
        job.kill()
        job.communicate()
        wait_for(lambda: not living([orphan]))

    def clear(self) -> None:
        """End jobs, nodes and faults that a test has left, so that the next one finds a head and nothing else."""
        for job in self._jobs:
            job.kill()
            job.communicate()
        self._jobs.clear()
        for held in self.faults.folder.iterdir():
            held.unlink()
        for node in [node for node in self._cluster.list_all_nodes() if node is not self._head]:
            self.lose(node)
        wait_for(lambda: not any(map(_runs_a_task, descendants(_raylet(self._head)))))

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _raylet(node: Node) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def _runs_a_task(pid: int) -> bool:
    """Its title is a function's name then; those of actors and of Ray's own processes begin with a capital."""
    with contextlib.suppress(OSError):  # gone meanwhile
        return re.match(r"ray::_?[a-z]", Path(f"/proc/{pid}/cmdline").read_text()) is not None
    return False


def ends_well(job: "subprocess.Popen[str]") -> str:
    """Wait for a job; returns its standard error."""
    _, error = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, error[-3000:]
    return error


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
