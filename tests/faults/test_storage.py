"""Nodes that share nothing but an S3 API, which fails now and then, or for good: the same bytes as on one disk."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.mini import MINI_DUMP
from deeped_ray.storage.location import Location
from tests.faults.nodes import Nodes, ends_well, wait_for
from tests.s3 import S3, prefix

CORPUS = CorpusConfig(min_word_count=2, shard_mb=0.1, partitions=2)
SETTINGS = ("min_word_count=2", "shard_mb=0.1", "partitions=2", "dimension=100")
OPTIONS = tuple(f"--set=corpus.{setting}" for setting in SETTINGS)


@pytest.fixture(scope="module")
def nodes(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes, each with a cache of its own, and a driver with a third."""
    caches = tmp_path_factory.mktemp("caches")
    shared = {**s3_server.environment, "DEEPED_LEASE_S": "1", "DEEPED_STORAGE_PATIENCE_S": "30"}
    nodes = Nodes(environment={**shared, "DEEPED_CACHE": str(caches / "head")})
    nodes.add(environment={"DEEPED_CACHE": str(caches / "other")})
    nodes.environment["DEEPED_CACHE"] = str(caches / "driver")
    yield nodes
    nodes.shutdown()


@pytest.fixture
def dump(s3: S3) -> Location:
    target = Location(prefix("dump")) / MINI_DUMP.name
    target.upload(MINI_DUMP)
    return target


@pytest.fixture(scope="module")
def on_disk(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    kb = KnowledgeBase(tmp_path_factory.mktemp("disk") / "kb", create=True)
    build_corpus(kb, CORPUS)
    return [kb.open(name).id for name in ("pages", "corpus")]


def test_all_stages_on_nodes_that_share_nothing_but_storage_that_fails_now_and_then(
    nodes: Nodes, s3: S3, dump: Location, on_disk: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    kb = KnowledgeBase(prefix("kb"))
    with s3.failing(0.02):
        ends_well(nodes.start("build_corpus", "--kb", str(kb), "--dump", str(dump), *OPTIONS))
        ends_well(nodes.start("embed_entities", "--kb", str(kb), "--set=vectors.shard_words=10000"))
        ends_well(nodes.start("build_index", "--kb", str(kb)))
    train = ("--train", "mini:train", "--dev", "mini:dev", "--set=linker.epochs=1", "--model", "local")
    result = json.loads(ends_well(nodes.start("train_linker", "--kb", str(kb), *train)).splitlines()[-1])
    assert s3.num_failed > 0
    assert result["dev_accuracy"]["local"] > 0.5
    assert [kb.open(name).id for name in ("pages", "corpus")] == on_disk
    assert (kb.location / "runs").sizes() == {}
    assert kb.verify() == dict.fromkeys(("pages", "corpus", "words", "vectors", "index", "linker"))
    (answer,) = Linker.open(kb, "local").link("The Stanley Cup is theirs.")
    assert answer.best is not None
    assert answer.best.title == "Stanley Cup"


def test_storage_that_goes_away_for_good_ends_the_job_with_one_line_and_loses_nothing(
    nodes: Nodes, s3: S3, dump: Location, on_disk: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    kb = KnowledgeBase(prefix("kb"))
    command = ("build_corpus", "--kb", str(kb), "--dump", str(dump), *OPTIONS)
    job = nodes.start(*command, environment={"DEEPED_STORAGE_PATIENCE_S": "3"})
    wait_for(lambda: any("receipts/parse-" in name for name in kb.location.sizes()))
    with s3.failing(1.0):
        _, error = job.communicate(timeout=120)
    assert job.returncode == 2
    # other workers may still say that they try again
    (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: Cannot ")
    assert line.endswith("run the same command when the storage is there again.")
    assert any("receipts/parse-" in name for name in kb.location.sizes())
    ends_well(nodes.start(*command))
    assert [kb.open(name).id for name in ("pages", "corpus")] == on_disk
