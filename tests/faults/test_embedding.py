"""A driver, a node and a worker are lost while entities are embedded: the same bytes as an undisturbed run."""

from pathlib import Path

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from deeped_ray.stages import NAMES, STAGES
from tests.conftest import copy_of
from tests.faults.nodes import Nodes, undisturbed

EMBED_ENTITIES = STAGES[NAMES.index("embed_entities")]
SETTINGS = ("vectors.method=reference", "vectors.page_steps=9", "vectors.link_steps=3", "vectors.shard_entities=40")
"""226 entities make six shards."""


def test_lost_driver_node_and_worker_change_no_byte(
    corpus_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    command = ("embed_entities", "--kb", str(kb), *SETTINGS)
    faults.arm("embed/driver/2", "embed/2")
    first = nodes.start(*command)
    first.held_at("embed/driver/2")
    first.kill(orphan=first.held_at("embed/2"))

    nodes.add()
    faults.arm("embed/0", "embed/1")  # finished: made again, they would hold the job forever
    faults.arm("embed/3", "embed/4")
    second = nodes.start(*command)
    nodes.lose_node_and_worker(second.held_at("embed/3"), second.held_at("embed/4"))
    second.result()
    expected = copy_of(corpus_kb, tmp_path / "expected")
    undisturbed(EMBED_ENTITIES, expected, *SETTINGS)
    assert kb.open("vectors").id == expected.open("vectors").id
