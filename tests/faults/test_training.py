"""A lost driver, worker and node: the fit goes on from its last validation and ends as if nothing had happened."""

import os
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.faults import Faults
from deeped_ray.storage.location import Location
from deeped_ray.training.history import Validation, read_history
from deeped_ray.training.trainer import _forget_torn_snapshot
from tests.conftest import copy_of
from tests.faults.nodes import Nodes

SETTINGS = ("linker.epochs=4", "linker.documents_per_step=8", "linker.seeds=2", "linker.model=global")  # of seeds_kb


def history_of(kb: KnowledgeBase) -> list[Validation]:
    return read_history(kb.open("linker").path / "history.csv")


def test_every_seed_is_kept_and_the_best_is_served(seeds_kb: KnowledgeBase) -> None:
    folder = seeds_kb.open("linker").path
    seeds = [load_file(folder / "seeds" / f"global.{seed}.safetensors") for seed in (0, 1)]
    best = load_file(folder / "global.safetensors")
    assert [all((best[name] == seed[name]).all() for name in best) for seed in seeds].count(True) == 1
    rows = [(row.seed, row.epoch) for row in history_of(seeds_kb)]
    assert rows == [(seed, epoch) for seed in (0, 1) for epoch in (1, 2, 3, 4)]


def test_a_list_of_checkpoints_that_a_kill_cut_short_is_forgotten(tmp_path: Path) -> None:
    snapshot = tmp_path / "checkpoint_manager_snapshot.json"
    for content, is_kept in (('{"ray_version": "2.60.0"}', True), ('{"ray_ver', False), ("", False)):
        snapshot.write_text(content)
        _forget_torn_snapshot(Location(tmp_path))
        assert snapshot.exists() == is_kept


def test_lost_driver_worker_and_node_cost_nothing_but_time(
    corpus_kb: KnowledgeBase, seeds_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    before = kb.manifest()
    command = ("train_linker", "--kb", str(kb), "--storage-path", str(tmp_path / "runs"), *SETTINGS)
    nodes.add(num_cpus=2)  # the worker asks for two CPUs, which the head does not have
    faults.arm("train/global.0/3")
    first = nodes.start(*command)
    first.kill(orphan=first.held_at("train/global.0/3"))
    assert kb.manifest() == before

    # an epoch that was validated long before would hold the job forever, if it were fitted again
    faults.arm("train/global.0/1", "train/global.1/1", "train/global.1/3")
    second = nodes.start(*command)
    os.kill(second.held_at("train/global.1/1"), signal.SIGKILL)
    nodes.lose_node(second.held_at("train/global.1/3"))
    faults.arm("train/global.0/4", "train/global.1/1")
    nodes.add(num_cpus=2)
    second.result()
    rows, expected = history_of(kb), history_of(seeds_kb)
    assert [(row.seed, row.epoch) for row in rows] == [(row.seed, row.epoch) for row in expected]
    # up to rounding: where arrays lie in memory decides in which order sums are taken
    for column, tolerance in (("learning_rate", 1e-9), ("loss", 1e-3), ("dev_accuracy", 0.02)):
        assert [getattr(row, column) for row in rows] == pytest.approx(
            [getattr(row, column) for row in expected], rel=tolerance
        )
