"""Several real raylets on one machine, jobs on them, and ways to lose each of these at a named point."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.node import Node
from ray.cluster_utils import Cluster

from deeped_ray import stages
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running import tasks
from deeped_ray.running.config import parse_sets
from deeped_ray.running.faults import Faults
from deeped_ray.running.local_ray import descendants, living
from tests.conftest import WITHOUT_EXTRAS, run_here

ROOT = Path(__file__).parent.parent.parent
# A raylet that is gone refuses connections and is given up after 1.5 s; one that is merely slow has the default 10 s.
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
STORE_BYTES = 100 * 2**20
PATIENCE_S = 600
"""For what takes less than 20 s on a free machine."""


@dataclass(frozen=True)
class Job:
    """`python jobs/<job>.py`, a process of its own."""

    process: "subprocess.Popen[bytes]"
    log: Path
    faults: Faults

    def held_at(self, point: str) -> int:
        """The process that waits there, once it does."""
        wait_for(lambda: self.faults.is_held(point) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        return self.faults.wait(point)

    def result(self, *, code: int = 0) -> dict[str, Any]:
        """Its last line, when it has ended."""
        self.process.wait(PATIENCE_S)
        assert self.process.returncode == code, self.log.read_text()[-3000:]
        found: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return found

    def kill(self, *, orphan: int) -> None:
        """SIGKILL; returns when Ray has ended the worker that was held for it."""
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not living([orphan]))


class Nodes:
    """A head with one CPU, nodes that come and go, and jobs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.faults = Faults(folder / "faults")
        self._folder = folder
        self._environment = {**environment, **self.faults.environment}
        self._jobs: list[Job] = []
        self._cluster = Cluster()
        self._head = self._add("head", 1, _system_config=QUICK_TO_NOTICE)

    def _add(
        self, name: str, num_cpus: int, *, environment: Mapping[str, str] | None = None, **options: object
    ) -> Node:
        with pytest.MonkeyPatch.context() as patch:
            # as where Ray is installed without its dashboard: else an agent on every node takes 3 s to start
            patch.setattr(ray._private.utils, "get_dashboard_dependency_error", lambda: ImportError("left out"))
            node: Node = self._cluster.add_node(
                wait=False,
                num_cpus=num_cpus,
                object_store_memory=STORE_BYTES,
                include_log_monitor=False,  # what workers say stays in their files
                **WITHOUT_EXTRAS,
                env_vars={
                    **self._environment,
                    "DEEPED_CACHE": str(self._folder / f"cache-{name}"),
                    **(environment or {}),
                },
                **options,
            )
        self._cluster.wait_for_nodes(timeout=PATIENCE_S)
        return node

    def add(self, *, num_cpus: int = 1, environment: Mapping[str, str] | None = None) -> None:
        """A node that shares no cache with the others."""
        self._add("node", num_cpus, environment=environment)

    def start(self, job: str, *options: str, environment: Mapping[str, str] | None = None) -> Job:
        """`--set` may be left out before settings: "corpus.partitions=3"."""
        arguments = [word for option in options for word in (("--set", option) if "=" in option else (option,))]
        log = self._folder / f"job-{len(list(self._folder.glob('job-*')))}.log"
        shared = {**self._environment, "DEEPED_CACHE": str(self._folder / "cache-driver")}
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [sys.executable, f"jobs/{job}.py", *arguments],
                cwd=ROOT,
                env={**os.environ, **shared, "RAY_ADDRESS": self._cluster.address, **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._jobs.append(Job(process, log, self.faults))
        return self._jobs[-1]

    def lose_node(self, worker: int) -> None:
        """SIGKILL to the raylet of a worker; it dies with it, and the rest of the cluster finds out by itself."""
        (node,) = [node for node in self._cluster.list_all_nodes() if worker in descendants(_raylet(node))]
        assert node is not self._head
        self._lose(node)

    def lose_node_and_worker(self, *workers: int) -> None:
        """Of two workers that are held, one is on the head and one on the node that was added."""
        on_node, on_head = sorted(workers, key=descendants(_raylet(self._head)).__contains__)
        self.lose_node(on_node)
        os.kill(on_head, signal.SIGKILL)

    def _lose(self, node: Node) -> None:
        os.kill(_raylet(node), signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def clear(self) -> None:
        """End jobs, nodes and faults that a test has left, so that the next one finds a head and nothing else."""
        for job in self._jobs:
            job.process.kill()
            job.process.wait()
        self._jobs.clear()
        for node in [node for node in self._cluster.list_all_nodes() if node is not self._head]:
            self._lose(node)
        wait_for(lambda: not any(map(_runs_a_task, descendants(_raylet(self._head)))))
        self.faults.clear()

    def shutdown(self) -> None:
        self._cluster.shutdown()


def undisturbed(stage: stages.Stage, kb: KnowledgeBase, *settings: str) -> None:
    """What a job does, in this process and without a Ray."""
    _, sections = stages.resolve(parse_sets(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "run", run_here)
        stages.run_stage(KnowledgeBase(kb.root), stage, sections[stage.section])


def _raylet(node: Node) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def _runs_a_task(pid: int) -> bool:
    """Its title is a function's name then; those of actors and of Ray's own processes begin with a capital."""
    with contextlib.suppress(OSError):  # gone meanwhile
        return re.match(r"ray::_?[a-z]", Path(f"/proc/{pid}/cmdline").read_text()) is not None
    return False


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
