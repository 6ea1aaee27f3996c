"""A worker, a node and the driver are killed in turn, in a cluster of their own: same bytes as an undisturbed run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.local_ray import descendants

# few entities a shard and many steps, so that there is time to kill something
JOB = (
    "jobs/embed_entities.py",
    "--method",
    "reference",
    "--page-steps",
    "150",
    "--link-steps",
    "20",
    "--shard-entities",
    "12",
)
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def start(cluster: Cluster, kb: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *JOB, "--kb", str(kb)], cwd=ROOT, env=environment)


def copy_of(corpus_kb: KnowledgeBase, target: Path) -> Path:
    shutil.copytree(corpus_kb.root, target)
    return target


def shards_of(kb: Path) -> list[Path]:
    return sorted((kb / "runs").rglob("entities-*.npz"))


def wait_for(condition: Callable[[], object], *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def workers_of(cluster: Cluster) -> list[int]:
    """Processes that embed right now, of this cluster's raylets."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    pids = {pid for raylet in raylets for pid in descendants(raylet)}
    return [pid for pid in pids if b"ray::_embed_shard" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def undisturbed(corpus_kb: KnowledgeBase, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    kb = copy_of(corpus_kb, tmp_path_factory.mktemp("undisturbed") / "kb")
    assert start(cluster, kb).wait(timeout=240) == 0
    return KnowledgeBase(kb).open("vectors").id


def test_a_killed_worker_costs_only_its_shard(
    corpus_kb: KnowledgeBase, cluster: Cluster, undisturbed: str, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = start(cluster, kb)
    wait_for(lambda: shards_of(kb) and workers_of(cluster))
    os.kill(workers_of(cluster)[0], signal.SIGKILL)
    assert job.wait(timeout=240) == 0
    assert KnowledgeBase(kb).open("vectors").id == undisturbed


def test_a_killed_node_costs_only_its_shards(
    corpus_kb: KnowledgeBase, cluster: Cluster, undisturbed: str, tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = start(cluster, kb)
    wait_for(lambda: shards_of(kb) and len(workers_of(cluster)) == 2)
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    assert job.wait(timeout=240) == 0
    assert KnowledgeBase(kb).open("vectors").id == undisturbed
    cluster.remove_node(node, allow_graceful=False)


def test_a_killed_driver_is_taken_up_by_the_same_command(
    corpus_kb: KnowledgeBase, cluster: Cluster, undisturbed: str, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = start(cluster, kb)
    wait_for(lambda: len(shards_of(kb)) >= 2)
    job.send_signal(signal.SIGKILL)
    job.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in shards_of(kb)}
    assert KnowledgeBase(kb).open("vectors").id != undisturbed
    again = start(cluster, kb)
    wait_for(lambda: len(shards_of(kb)) > len(finished) + 1 or again.poll() is not None)
    kept = {path.name: path.stat().st_mtime_ns for path in shards_of(kb)}
    assert again.poll() is not None or finished.items() <= kept.items()
    assert again.wait(timeout=240) == 0
    assert KnowledgeBase(kb).open("vectors").id == undisturbed
