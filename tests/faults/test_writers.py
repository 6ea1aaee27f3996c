"""Two drivers on one knowledge base: the second refuses and names the first, wherever it lies."""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.storage.lease import BusyError
from tests.faults.nodes import ROOT, Nodes, ends_well, wait_for
from tests.s3 import S3, prefix

WRITER = """
    import sys, time
    import numpy as np
    from deeped_ray.knowledge.base import KnowledgeBase
    with KnowledgeBase(sys.argv[1]).write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
        print("writing", flush=True)
        time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def writing(kb: KnowledgeBase, *, seconds: float) -> Iterator["subprocess.Popen[str]"]:
    """Another process that is writing, until it is ready or killed."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(kb), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process


@pytest.fixture(params=["disk", "s3"])
def kb(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnowledgeBase:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPED_LEASE_S", "0.5")
    if request.param == "disk":
        return KnowledgeBase(tmp_path / "kb", create=True)
    request.getfixturevalue("s3")
    return KnowledgeBase(prefix("kb"), create=True)


def write(kb: KnowledgeBase, value: int) -> None:
    with kb.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.full(3, value))


def test_a_second_writer_refuses_and_names_the_first(kb: KnowledgeBase) -> None:
    with writing(kb, seconds=4) as first:
        named = rf"process {first.pid} on \S+, has been writing to {re.escape(str(kb))} since"
        with pytest.raises(BusyError, match=named):
            write(kb, 1)
    assert first.returncode == 0
    assert kb.open("pages").array("numbers").tolist() == [0, 0, 0]
    write(kb, 2)
    assert kb.open("pages").array("numbers").tolist() == [2, 2, 2]


def test_the_right_to_write_ends_with_the_writer(kb: KnowledgeBase) -> None:
    with writing(kb, seconds=60) as first:
        first.kill()
    write(kb, 2)
    assert kb.open("pages").array("numbers").tolist() == [2, 2, 2]


def test_a_writer_on_another_machine_that_is_gone_is_waited_for_only_so_long(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPED_LEASE_S", "0.5")
    kb = KnowledgeBase(prefix("kb"), create=True)
    (kb.location / ".writer.json").write_json(
        {"owner": "a", "beat": 3, "job": "embed_entities.py", "host": "elsewhere", "pid": 1, "machine": "another"}
    )
    start = time.monotonic()
    write(kb, 1)
    assert 1.5 <= time.monotonic() - start < 15
    assert kb.open("pages").array("numbers").tolist() == [1, 1, 1]


def test_a_writer_that_lost_its_right_publishes_nothing(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    kb = KnowledgeBase(prefix("kb"), create=True)
    thief = {"owner": "b", "beat": 0, "job": "train_linker.py", "host": "elsewhere", "pid": 7}
    with (
        pytest.raises(BusyError, match=r"train_linker\.py, process 7 on elsewhere"),
        kb.write("pages", config={}, parents=()) as folder,
    ):
        np.save(folder / "numbers.npy", np.zeros(3))
        (kb.location / ".writer.json").write_json(thief)
    assert "pages" not in kb
    assert (kb.location / ".writer.json").read_json() == thief


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.shutdown()


def test_a_job_started_twice_refuses_the_second_time_with_one_line(nodes: Nodes, tmp_path: Path) -> None:
    settings = (f"--set=corpus.{setting}" for setting in ("min_word_count=2", "dimension=50", "shard_mb=0.02"))
    options = ("--kb", str(tmp_path / "kb"), *settings)
    first = nodes.start("build_corpus", *options)
    wait_for(lambda: list((tmp_path / "kb").rglob("parse-*.json")))
    second = nodes.start("build_corpus", *options)
    _, error = second.communicate(timeout=120)
    assert second.returncode == 2
    assert error.splitlines()[-1].startswith(f"error: build_corpus.py, process {first.pid} on ")
    ends_well(first)
    assert {"pages", "corpus", "words"} <= set(KnowledgeBase(tmp_path / "kb").manifest()["parts"])
