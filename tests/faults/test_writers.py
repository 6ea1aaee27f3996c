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
from tests.faults.nodes import ROOT
from tests.s3 import S3, prefix

WRITER = """
    import sys
    import numpy as np
    from deeped_ray.knowledge.base import KnowledgeBase
    with KnowledgeBase(sys.argv[1]).write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
        print("writing", flush=True)
        sys.stdin.read()
"""


@contextlib.contextmanager
def writing(kb: KnowledgeBase) -> Iterator["subprocess.Popen[str]"]:
    """Another process that is writing; it finishes its part when the block ends, unless it is killed."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(kb)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.communicate()


@pytest.fixture(params=["disk", "s3"])
def kb(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnowledgeBase:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPED_LEASE_S", "2")  # a slow machine, too, renews it within three times that
    if request.param == "disk":
        return KnowledgeBase(tmp_path / "kb", create=True)
    request.getfixturevalue("s3")
    return KnowledgeBase(prefix("kb"), create=True)


def write(kb: KnowledgeBase, value: int) -> None:
    with kb.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.full(3, value))


def test_a_second_writer_refuses_and_names_the_first(kb: KnowledgeBase) -> None:
    with writing(kb) as first:
        named = rf"process {first.pid} on \S+, has been writing to {re.escape(str(kb))} since"
        with pytest.raises(BusyError, match=named):
            write(kb, 1)
    assert first.returncode == 0
    assert kb.open("pages").array("numbers").tolist() == [0, 0, 0]
    write(kb, 2)
    assert kb.open("pages").array("numbers").tolist() == [2, 2, 2]


def test_the_right_to_write_ends_with_the_writer(kb: KnowledgeBase) -> None:
    with writing(kb) as first:
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
    assert time.monotonic() - start >= 3 * 0.5
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
