"""A worker, a node and the driver are lost while entities are embedded: the same bytes as an undisturbed run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from tests.faults.nodes import Nodes, ends_well, wait_for

# few entities a shard and many steps, so that there is time to kill something
OPTIONS = ("--method", "reference", "--page-steps", "150", "--link-steps", "20", "--shard-entities", "12")
TASK = "_embed_shard"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.shutdown()


def copy_of(corpus_kb: KnowledgeBase, target: Path) -> Path:
    shutil.copytree(corpus_kb.root, target)
    return target


def shards_of(kb: Path) -> list[Path]:
    return sorted((kb / "runs").rglob("entities-*.npz"))


def vectors_of(kb: Path) -> str:
    return KnowledgeBase(kb).open("vectors").id


@pytest.fixture(scope="module")
def undisturbed(corpus_kb: KnowledgeBase, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> str:
    kb = copy_of(corpus_kb, tmp_path_factory.mktemp("undisturbed") / "kb")
    ends_well(nodes.start("embed_entities", "--kb", str(kb), *OPTIONS))
    return vectors_of(kb)


def test_a_killed_worker_costs_only_its_shard(
    corpus_kb: KnowledgeBase, nodes: Nodes, undisturbed: str, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = nodes.start("embed_entities", "--kb", str(kb), *OPTIONS)
    wait_for(lambda: shards_of(kb))
    nodes.kill_worker(TASK)
    ends_well(job)
    assert vectors_of(kb) == undisturbed


def test_a_killed_node_costs_only_its_shards(
    corpus_kb: KnowledgeBase, nodes: Nodes, undisturbed: str, tmp_path: Path
) -> None:
    lost = nodes.add()
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = nodes.start("embed_entities", "--kb", str(kb), *OPTIONS)
    wait_for(lambda: shards_of(kb) and len(nodes.workers(TASK)) == 2)
    nodes.lose(lost)
    ends_well(job)
    assert vectors_of(kb) == undisturbed


def test_a_killed_driver_is_taken_up_by_the_same_command(
    corpus_kb: KnowledgeBase, nodes: Nodes, undisturbed: str, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    job = nodes.start("embed_entities", "--kb", str(kb), *OPTIONS)
    wait_for(lambda: len(shards_of(kb)) >= 2)
    job.kill()
    job.communicate()
    finished = {path.name: path.stat().st_mtime_ns for path in shards_of(kb)}
    assert vectors_of(kb) != undisturbed
    again = nodes.start("embed_entities", "--kb", str(kb), *OPTIONS)
    wait_for(lambda: len(shards_of(kb)) > len(finished) + 1 or again.poll() is not None)
    kept = {path.name: path.stat().st_mtime_ns for path in shards_of(kb)}
    assert again.poll() is not None or finished.items() <= kept.items()
    ends_well(again)
    assert vectors_of(kb) == undisturbed
