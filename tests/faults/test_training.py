"""A lost worker, node and driver: the fit goes on from its last validation and ends as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.model import ModelConfig
from deeped_ray.running.local_ray import descendants
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.history import read_history
from deeped_ray.training.trainer import train_linker
from tests.faults.nodes import Nodes, ends_well

TRAINING = TrainingConfig(epochs=8, documents_per_step=2, seeds=2, model="global")
FLAGS = ("--epochs", "8", "--documents-per-step", "2", "--seeds", "2", "--model", "global")
JOB = Path(__file__).parent.parent.parent / "jobs" / "train_linker.py"


def history_of(kb: KnowledgeBase) -> list[dict[str, Any]]:
    rows = read_history(kb.open("linker").path / "history.csv")
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def assert_same_curve(kb: KnowledgeBase, other: KnowledgeBase) -> None:
    """Up to rounding: where arrays lie in memory decides in which order sums are taken."""
    rows, others = history_of(kb), history_of(other)
    assert [(row["seed"], row["epoch"]) for row in rows] == [(row["seed"], row["epoch"]) for row in others]
    for column, tolerance in (("learning_rate", 1e-9), ("loss", 1e-3), ("dev_accuracy", 0.02)):
        assert [row[column] for row in rows] == pytest.approx([row[column] for row in others], rel=tolerance)


def copy_of(kb: KnowledgeBase, folder: Path) -> KnowledgeBase:
    shutil.copytree(kb.root, folder)
    return KnowledgeBase(folder)


def wait_for_checkpoint(folder: Path, *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not list(folder.rglob("history.json")):
        assert time.monotonic() < deadline, f"no checkpoint appeared in {folder}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(corpus_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    kb = copy_of(corpus_kb, tmp_path_factory.mktemp("undisturbed") / "kb")
    train_linker(kb, TRAINING, ModelConfig(), CandidateConfig(), WorkerConfig())
    return kb


def test_every_seed_is_kept_and_the_best_is_served(undisturbed: KnowledgeBase) -> None:
    folder = undisturbed.open("linker").path
    seeds = [load_file(folder / "seeds" / f"global.{seed}.safetensors") for seed in (0, 1)]
    best = load_file(folder / "global.safetensors")
    assert [all((best[name] == seed[name]).all() for name in best) for seed in seeds].count(True) == 1
    assert {(row["seed"], row["epoch"]) for row in history_of(undisturbed)} == {
        (s, e) for s in (0, 1) for e in range(1, 9)
    }


def kill_a_train_worker(storage: Path, killed: list[int]) -> None:
    wait_for_checkpoint(storage)
    for pid in descendants(os.getpid()):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"RayTrainWorker" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)


def test_a_killed_worker_costs_nothing_but_time(
    corpus_kb: KnowledgeBase, undisturbed: KnowledgeBase, tmp_path: Path
) -> None:
    kb, killed = copy_of(corpus_kb, tmp_path / "kb"), list[int]()
    killer = threading.Thread(target=kill_a_train_worker, args=(tmp_path / "runs", killed))
    killer.start()
    resume = ResumeConfig(storage_path=str(tmp_path / "runs"))
    train_linker(kb, TRAINING, ModelConfig(), CandidateConfig(), WorkerConfig(), resume)
    killer.join()
    assert killed
    assert_same_curve(kb, undisturbed)


def test_a_killed_driver_is_run_again(corpus_kb: KnowledgeBase, undisturbed: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(corpus_kb, tmp_path / "kb")
    before = kb.manifest()["parts"].get("linker")
    command = [sys.executable, str(JOB), "--kb", str(kb.root), "--storage-path", str(tmp_path / "runs"), *FLAGS]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_checkpoint(tmp_path / "runs")
        started = descendants(first.pid)
    finally:
        first.kill()
        first.wait()
    for pid in started:  # the Ray it started
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
    assert kb.manifest()["parts"].get("linker") == before
    train_linker(
        kb,
        TRAINING,
        ModelConfig(),
        CandidateConfig(),
        WorkerConfig(),
        ResumeConfig(storage_path=str(tmp_path / "runs")),
    )
    assert_same_curve(kb, undisturbed)


def test_a_killed_node_is_replaced_by_the_next_that_comes(
    corpus_kb: KnowledgeBase, undisturbed: KnowledgeBase, tmp_path: Path
) -> None:
    nodes = Nodes(head_cpus=0)
    try:
        lost = nodes.add(num_cpus=2)
        kb = copy_of(corpus_kb, tmp_path / "kb")
        job = nodes.start("train_linker", "--kb", str(kb.root), "--storage-path", str(tmp_path / "runs"), *FLAGS)
        wait_for_checkpoint(tmp_path / "runs")
        nodes.lose(lost)
        nodes.add(num_cpus=2)
        ends_well(job)
        assert_same_curve(kb, undisturbed)
    finally:
        nodes.shutdown()
