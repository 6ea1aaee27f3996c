"""A driver, a node and a worker are lost while entities are embedded: the same bytes as an undisturbed run."""

import os
import shutil
import signal
from pathlib import Path

from deeped_ray.embeddings.config import EmbeddingConfig, Methods, ShardConfig
from deeped_ray.embeddings.reference import ReferenceConfig
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from tests.faults.nodes import Nodes, ends_well

METHODS = Methods(embedding=EmbeddingConfig(method="reference"), reference=ReferenceConfig(page_steps=9, link_steps=3))
SHARDING = ShardConfig(shard_entities=40)  # 226 entities make six shards
SET = ("--method", "reference", "--set", "vectors.page_steps=9", "--set", "vectors.link_steps=3")


def copy_of(kb: KnowledgeBase, folder: Path) -> KnowledgeBase:
    return KnowledgeBase(shutil.copytree(kb.root, folder))


def test_lost_driver_node_and_worker_change_no_byte(
    corpus_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    command = ("embed_entities", "--kb", str(kb), *SET, "--set", "vectors.shard_entities=40")
    faults.arm("embed/driver/2", "embed/2")
    first = nodes.start(*command)
    faults.wait("embed/driver/2")
    nodes.kill_driver(first, orphan=faults.wait("embed/2"))
    nodes.add()
    faults.arm("embed/3", "embed/4")
    second = nodes.start(*command)
    held = faults.wait("embed/3"), faults.wait("embed/4")  # on two nodes, for each has one CPU
    lost, left = sorted(held, key=lambda pid: nodes.node_of(pid).head)
    nodes.lose(nodes.node_of(lost))
    os.kill(left, signal.SIGKILL)
    ends_well(second)
    expected = copy_of(corpus_kb, tmp_path / "expected")
    embed_entities(expected, METHODS, SHARDING)
    assert kb.open("vectors").id == expected.open("vectors").id
