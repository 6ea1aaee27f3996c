"""Nodes, workers and the driver are lost while a dump is read: the same bytes as an undisturbed run."""

import os
import signal
from pathlib import Path

from deeped_ray.corpus.shuffle import MAX_RANGES
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from tests.conftest import MINI_SETTINGS
from tests.faults.nodes import Nodes

PAGES = "pages-*.parquet"
"""The files of the part `pages` that do not depend on the number of partitions."""


def test_lost_nodes_driver_and_workers_change_no_byte_and_a_second_driver_is_refused(
    corpus_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    # every range is cut in two, so that files are combined
    command = ("build_corpus", "--kb", str(tmp_path / "kb"), *MINI_SETTINGS, "corpus.partitions=17")
    nodes.add()
    faults.arm("parse/1", "parse/2", "count/driver/2", "count/2")
    first = nodes.start(*command)
    nodes.lose_node_and_worker(first.held_at("parse/1"), first.held_at("parse/2"))
    first.held_at("count/driver/2")
    first.kill(orphan=first.held_at("count/2"))

    faults.arm("count/0", "count/1")  # finished: made again, they would hold the job forever
    faults.arm("reduce/0", "reduce/1", "reduce/2")
    nodes.add()
    second = nodes.start(*command)
    nodes.lose_node_and_worker(second.held_at("reduce/0"), second.held_at("reduce/1"))
    worker = second.held_at("reduce/2")
    combined = list((tmp_path / "kb" / "runs").rglob("combined-mentions-*.arrow"))
    assert len(combined) == 2 * MAX_RANGES  # of links, and of titles
    refused = nodes.start(*command).result(code=2)
    assert refused["error"].startswith(f"build_corpus.py, process {second.process.pid} on ")
    os.kill(worker, signal.SIGKILL)
    second.result()
    kb = KnowledgeBase(tmp_path / "kb")
    assert [kb.open(part).id for part in ("corpus", "words")] == [
        corpus_kb.open(part).id for part in ("corpus", "words")
    ]
    pages, expected = (each.open("pages") for each in (kb, corpus_kb))
    assert [pages.record["files"][file.name] for file in pages.files(PAGES)] == [
        expected.record["files"][file.name] for file in expected.files(PAGES)
    ]
