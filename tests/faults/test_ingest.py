"""A worker, a node and the driver are lost while a dump is read: the same bytes as an undisturbed run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from tests.faults.nodes import Nodes, ends_well, large_dump, wait_for

SETTINGS = ("min_word_count=2", "dimension=20", "shard_mb=0.2", "partitions=4")
OPTIONS = tuple(f"--set=corpus.{setting}" for setting in SETTINGS)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.shutdown()


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_dump(tmp_path_factory.mktemp("dump") / "large.xml", copies=12)


def command(kb: Path, dump: Path) -> tuple[str, ...]:
    return ("--kb", str(kb), "--dump", str(dump), *OPTIONS)


def ids(kb: Path) -> list[str]:
    return [KnowledgeBase(kb).open(name).id for name in ("pages", "corpus", "words")]


def files(kb: Path, pattern: str) -> list[Path]:
    return list((kb / "runs").rglob(pattern))


@pytest.fixture(scope="module")
def undisturbed(nodes: Nodes, dump: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    kb = tmp_path_factory.mktemp("undisturbed") / "kb"
    ends_well(nodes.start("build_corpus", *command(kb, dump)))
    return ids(kb)


def test_killed_workers_cost_only_their_shards(
    nodes: Nodes, dump: Path, undisturbed: list[str], tmp_path: Path
) -> None:
    kb = tmp_path / "kb"
    job = nodes.start("build_corpus", *command(kb, dump))
    for task in ("parse_shard", "count_shard", "spill_occurrences"):
        nodes.kill_worker(task)
    ends_well(job)
    assert ids(kb) == undisturbed


def test_a_killed_node_costs_only_its_shards_and_may_come_back(
    nodes: Nodes, dump: Path, undisturbed: list[str], tmp_path: Path
) -> None:
    kb, lost = tmp_path / "kb", nodes.add()
    job = nodes.start("build_corpus", *command(kb, dump))
    wait_for(lambda: files(kb, "parse-*.json") and len(nodes.workers("parse_shard")) == 2)
    nodes.lose(lost)
    wait_for(lambda: files(kb, "mentions-*.arrow"))  # parsed without it
    again = nodes.add()
    wait_for(lambda: len(nodes.workers("count_shard")) == 2 or job.poll() is not None)
    ends_well(job)
    assert ids(kb) == undisturbed
    nodes.lose(again)


def test_a_killed_driver_is_taken_up_by_the_same_command(
    nodes: Nodes, dump: Path, undisturbed: list[str], tmp_path: Path
) -> None:
    kb = tmp_path / "kb"
    for reached in ("parse-*.json", "mentions-*.arrow"):
        job = nodes.start("build_corpus", *command(kb, dump))
        wait_for(lambda reached=reached: len(files(kb, reached)) >= 2)  # type: ignore[misc]
        job.kill()
        job.communicate()
        assert "corpus" not in KnowledgeBase(kb)
    finished = {path.name: path.stat().st_mtime_ns for path in files(kb, "mentions-*.arrow")}
    again = nodes.start("build_corpus", *command(kb, dump))
    wait_for(lambda: files(kb, "occurrences-*.arrow") or again.poll() is not None)
    kept = {path.name: path.stat().st_mtime_ns for path in files(kb, "mentions-pages*.arrow")}
    assert (
        again.poll() is not None or {name: finished[name] for name in kept if name in finished}.items() <= kept.items()
    )
    ends_well(again)
    assert ids(kb) == undisturbed
