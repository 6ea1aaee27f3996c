"""A node, workers and the driver are lost while a dump is read: the same bytes as an undisturbed run."""

import os
import signal
from pathlib import Path

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from tests.conftest import MINI_SETTINGS
from tests.faults.nodes import Nodes


def test_lost_node_driver_and_workers_change_no_byte_and_a_second_driver_is_refused(
    corpus_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    command = ("build_corpus", "--kb", str(tmp_path / "kb"), *MINI_SETTINGS)
    nodes.add()
    faults.arm("parse/1", "parse/2", "count/driver/2", "count/2")
    first = nodes.start(*command)
    nodes.lose_node_and_worker(first.held_at("parse/1"), first.held_at("parse/2"))
    first.held_at("count/driver/2")
    first.kill(orphan=first.held_at("count/2"))

    faults.arm("count/0", "count/1")  # finished: made again, they would hold the job forever
    faults.arm("reduce/0")
    second = nodes.start(*command)
    worker = second.held_at("reduce/0")
    refused = nodes.start(*command).result(code=2)
    assert refused["error"].startswith(f"build_corpus.py, process {second.process.pid} on ")
    os.kill(worker, signal.SIGKILL)
    second.result()
    for part in ("pages", "corpus", "words"):
        assert KnowledgeBase(tmp_path / "kb").open(part).id == corpus_kb.open(part).id
