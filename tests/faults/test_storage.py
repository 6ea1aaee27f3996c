"""Nodes that share nothing but an S3 API, which goes away for a while, or fails now and then.

Training on such a storage is tested in test_training.py.
"""

from pathlib import Path

import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running.faults import Faults
from deeped_ray.storage.location import Location
from tests.conftest import MINI_SETTINGS
from tests.faults.nodes import Job, Nodes
from tests.s3 import S3, prefix

NUM_SHARDS = 2
SETTINGS = (*MINI_SETTINGS, "corpus.shard_mb=0.25", "corpus.partitions=1")


@pytest.fixture
def command(s3: S3) -> tuple[str, ...]:
    dump = Location(prefix("dump")) / MINI_DUMP.name
    dump.upload(MINI_DUMP)
    return ("pipeline", "--kb", prefix("kb"), "--dump", str(dump), "--until", "build_index", *SETTINGS)


def goes_away_for_good(job: Job, s3: S3, faults: Faults) -> str:
    """While the driver has just seen the last shard; returns the error that the job ends with."""
    job.held_at(f"parse/driver/{NUM_SHARDS}")
    with s3.gone():
        faults.release(f"parse/driver/{NUM_SHARDS}")
        return str(job.result(code=2)["error"])


def test_stages_outlive_storage_that_goes_away_and_one_that_fails_now_and_then(
    nodes: Nodes,
    faults: Faults,
    s3: S3,
    command: tuple[str, ...],
    corpus_kb: KnowledgeBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults.arm(f"parse/driver/{NUM_SHARDS}")
    error = goes_away_for_good(nodes.start(*command, environment={"DEEPED_STORAGE_PATIENCE_S": "1"}), s3, faults)
    assert error.startswith("build_corpus: Cannot ")
    assert error.endswith("run the same command when the storage is there again.")

    nodes.add()
    faults.arm(*(f"parse/{place}" for place in range(NUM_SHARDS)))  # finished: made again, they would hold the job
    before = s3.num_failed
    with s3.failing(0.02):
        result = nodes.start(*command).result()
    assert s3.num_failed > before
    assert sorted(result["stages"]["build_corpus"]["made"]) == ["corpus", "pages", "words"]
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    kb = KnowledgeBase(command[2])
    assert kb.open("corpus").id == corpus_kb.open("corpus").id
    assert (kb.location / "runs").sizes() == {}
    assert kb.verify() == dict.fromkeys(("pages", "corpus", "words", "vectors", "index"))
    ours, theirs = (each.open("vectors").array("vectors") for each in (kb, corpus_kb))
    assert ours == pytest.approx(theirs, abs=0.01)  # learned words depend a little on the shards


def test_a_node_that_does_not_reach_the_storage_is_told_before_the_first_shard(
    nodes: Nodes, faults: Faults, command: tuple[str, ...]
) -> None:
    nodes.add(environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "DEEPED_STORAGE_PATIENCE_S": "0"})
    faults.arm(*(f"parse/{place}" for place in range(NUM_SHARDS)))  # begun, they would hold the job
    error = str(nodes.start(*command).result(code=2)["error"])
    assert error.startswith("build_corpus: Node ")
    assert f"cannot use {command[2]}/runs/" in error
    assert error.endswith("Give a folder that they share, or an address such as s3://bucket/kb.")
