"""Several real raylets on one machine, and ways to lose them: what the tests of faults have in common."""

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

from deeped_ray.mini import MINI_DUMP
from deeped_ray.running.local_ray import descendants

ROOT = Path(__file__).parent.parent.parent
# a lost node is noticed within 2 s instead of 15
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
STORE_BYTES = 100 * 2**20


class Nodes:
    """A cluster whose jobs are processes of their own."""

    def __init__(self, *, head_cpus: int = 1, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": head_cpus,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "_system_config": QUICK_TO_NOTICE,
                "env_vars": self.environment,
            },
        )

    def add(self, *, num_cpus: int = 1, environment: Mapping[str, str] | None = None) -> Node:
        node: Node = self.cluster.add_node(
            num_cpus=num_cpus,
            object_store_memory=STORE_BYTES,
            env_vars={**self.environment, **(environment or {})},
        )
        self.cluster.wait_for_nodes()
        return node

    def lose(self, node: Node) -> None:
        """SIGKILL to its raylet; the workers there die with it, and the rest of the cluster finds out by itself."""
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)

    def start(self, job: str, *options: str, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """`python jobs/<job>.py` on this cluster."""
        return subprocess.Popen(
            [sys.executable, f"jobs/{job}.py", *options],
            cwd=ROOT,
            env={
                **os.environ,
                **self.environment,
                **(environment or {}),
                "RAY_ADDRESS": self.cluster.address,
                "PYTHONPATH": str(ROOT),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def workers(self, task: str) -> list[int]:
        """Processes that run such a task right now."""
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.cluster.list_all_nodes()]
        pids = {pid for raylet in raylets for pid in descendants(raylet)}
        return sorted(pid for pid in pids if f"ray::{task}" in _command(pid))

    def kill_worker(self, task: str) -> None:
        """SIGKILL to one process that runs such a task, as soon as there is one."""
        killed: list[int] = []

        def kill() -> bool:
            for pid in self.workers(task)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            return bool(killed)

        wait_for(kill)

    def shutdown(self) -> None:
        self.cluster.shutdown()


def ends_well(job: "subprocess.Popen[str]", *, timeout_s: float = 240) -> str:
    """Wait for a job; returns its standard output."""
    out, err = job.communicate(timeout=timeout_s)
    assert job.returncode == 0, err[-3000:]
    return out


def wait_for(condition: Callable[[], object], *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:  # gone meanwhile
        return ""


def large_dump(path: Path, *, copies: int) -> Path:
    """The mini encyclopedia several times over, each copy under titles of its own: enough work to be interrupted."""
    xml = MINI_DUMP.read_text(encoding="utf-8")
    start, end = xml.index("<page>"), xml.rindex("</page>") + len("</page>")

    def copy(number: int) -> str:
        page = re.sub(r"<title>([^<]+)</title>", rf"<title>\1 in world {number}</title>", xml[start:end])
        page = re.sub(r"\[\[([^\]|#:]+)", rf"[[\1 in world {number}", page)
        page = re.sub(r'<redirect title="([^"]+)"', rf'<redirect title="\1 in world {number}"', page)
        return re.sub(r"<id>(\d+)</id>", lambda match: f"<id>{int(match[1]) + 100_000 * number}</id>", page)

    path.write_text(xml[:start] + "\n".join(copy(number) for number in range(copies)) + xml[end:], encoding="utf-8")
    return path
