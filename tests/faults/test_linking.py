"""Documents, a worker, a node and the driver are lost while a corpus is linked."""

from pathlib import Path
from typing import Any

import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from deeped_ray.stages import LINK_CORPUS
from tests.batch.test_link import answers, parts_of, write_lines
from tests.faults.nodes import Nodes, undisturbed

ENOUGH = 5
"""Documents in a partition."""


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return [{"text": document.text} for document in read_dataset("mini:test")[: 6 * ENOUGH]]


def test_documents_that_kill_their_worker_are_found_and_left_out(
    nodes: Nodes, mini_kb: KnowledgeBase, documents: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = [*documents[:7], {"text": "a deadly text"}, *documents[8:12]]
    path = write_lines(tmp_path / "a.jsonl", rows)
    command = ("link_corpus", "--kb", str(mini_kb), "--input", str(path), "--output", str(tmp_path / "out"))
    result = nodes.start(*command, f"answers.partition_documents={ENOUGH}", "answers.detector=spacy").result()
    assert (result["errors"], result["given_up_partitions"]) == ({"crashed": 1}, 0)
    found = answers(tmp_path / "out")
    assert [row["row"] for row in found if row["error"]] == [7]
    assert all(row["mentions"] for row in found if not row["error"])
    assert not list((tmp_path / "out").glob(".trying*"))


def test_lost_driver_node_and_worker_change_no_byte(
    nodes: Nodes, faults: Faults, mini_kb: KnowledgeBase, documents: list[dict[str, Any]], tmp_path: Path
) -> None:
    path, out = write_lines(tmp_path / "a.jsonl", documents), tmp_path / "out"
    command = ("link_corpus", "--kb", str(mini_kb), "--input", str(path), "--output", str(out))
    settings = f"answers.partition_documents={ENOUGH}"
    faults.arm("link/driver/2", "link/2")
    first = nodes.start(*command, settings)
    first.held_at("link/driver/2")
    first.kill(orphan=first.held_at("link/2"))

    nodes.add()
    faults.arm("link/3", "link/4")
    second = nodes.start(*command, settings)
    nodes.lose_node_and_worker(second.held_at("link/3"), second.held_at("link/4"))
    result = second.result()
    assert (result["errors"], result["skipped_partitions"]) == ({}, 2)
    to = (f"answers.input=[{path}]", f"answers.output={tmp_path / 'expected'}")
    undisturbed(LINK_CORPUS, mini_kb, *to, settings)
    assert parts_of(out) == parts_of(tmp_path / "expected")
