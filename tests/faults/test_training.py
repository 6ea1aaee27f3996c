"""A lost driver, worker and node: the fit goes on from its last validation and ends as if nothing had happened.

Two workers share each step, and take the same steps as one process. Nodes and driver share nothing but an S3 API, which fails now and then.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.storage.location import Location
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit
from deeped_ray.training.history import Validation, read_history
from deeped_ray.training.trainer import _forget_torn_snapshot
from tests.faults.nodes import Job, Nodes, wait_for
from tests.s3 import S3, prefix
from tests.test_security import is_pickle

TRAINING = TrainingConfig(epochs=4, documents_per_step=8, seeds=2, model="global")
SETTINGS = (
    *("linker.epochs=4", "linker.documents_per_step=8", "linker.seeds=2", "linker.model=global"),  # the same
    *("linker.num_workers=2", "linker.cpus_per_worker=1"),
)


@dataclass(frozen=True)
class Disturbed:
    """What a fit has made that lost its driver, a worker and its node."""

    kb: KnowledgeBase
    files: dict[str, bytes]
    """of its run, when the node was lost"""

    @property
    def history(self) -> list[Validation]:
        return read_history(self.kb.open("linker").path / "history.csv")


@pytest.fixture(scope="module")
def disturbed(
    corpus_kb: KnowledgeBase, cluster: Nodes, s3_server: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disturbed]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        patch.setenv("DEEPED_CACHE", str(tmp_path_factory.mktemp("cache")))
        s3_server.make_bucket()
        try:
            yield disturb(cluster, s3_server, uploaded(corpus_kb, Location(prefix("fit"))))
        finally:
            cluster.clear()


def uploaded(kb: KnowledgeBase, to: Location) -> KnowledgeBase:
    for name in kb.location.sizes():
        (to / name).upload(kb.root / name)
    return KnowledgeBase(str(to))


def disturb(nodes: Nodes, s3: S3, kb: KnowledgeBase) -> Disturbed:
    faults, before, runs = nodes.faults, kb.manifest(), Location(prefix("runs"))
    command = ("train_linker", "--kb", str(kb), "--storage-path", str(runs), *SETTINGS)
    nodes.add()  # one worker is here, the other on the head: each has one CPU
    faults.arm("train/global.0/3/0")
    first = nodes.start(*command)
    first.kill(orphan=held_after(first, runs, seed=0, epoch=3))
    assert kb.manifest() == before

    # an epoch that was validated long before would hold the job forever, if it were fitted again
    faults.arm("train/global.0/1/0", "train/global.1/2/0", "train/global.1/2/1")
    second = nodes.start(*command)
    workers = held_after(second, runs, seed=1, epoch=2), second.held_at("train/global.1/2/1")
    files = dict(read_files(runs))
    nodes.lose_node_and_worker(*workers)
    faults.arm("train/global.0/4/0", "train/global.1/1/0")
    nodes.add()
    with s3.failing(0.02):
        second.result()
    return Disturbed(kb, files)


def held_after(job: Job, runs: Location, *, seed: int, epoch: int) -> int:
    """The first worker, held after an epoch, once Ray has listed its checkpoint, which it does at its next poll."""
    worker = job.held_at(f"train/global.{seed}/{epoch}/0")
    wait_for(lambda: listed(runs) == (seed, epoch))
    return worker


def listed(runs: Location) -> tuple[int, int] | None:
    """Seed and epoch of the last checkpoint that a new run would go on from."""
    snapshot = next((name for name in runs.sizes() if name.endswith("/checkpoint_manager_snapshot.json")), None)
    with contextlib.suppress(ValueError):  # Ray has written a longer one meanwhile
        if snapshot is not None:
            metrics = (runs / snapshot).read_json()["latest_checkpoint_result"]["metrics"]
            return metrics["seed"], metrics["epoch"]
    return None


def read_files(folder: Location) -> Iterator[tuple[str, bytes]]:
    """Those that are not removed meanwhile: Ray keeps two checkpoints."""
    for name in folder.sizes():
        with contextlib.suppress(FileNotFoundError):
            yield name, (folder / name).read_bytes()


def undisturbed(kb: KnowledgeBase) -> list[Validation]:
    """The same fits in this process, by as many threads as there are workers: the order of sums depends on them."""
    documents = TrainingDocuments.of(read_dataset("mini:train"), read_dataset("mini:dev"))
    examples = Examples.of(documents, LinkerInputs(kb, CandidateConfig()))
    run, num_threads = Run(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for seed in TRAINING.all_seeds:
            list(Fit(FitName("global", seed), examples, TRAINING, ModelConfig(), run).validations())
    finally:
        torch.set_num_threads(num_threads)
    return run.history


def test_lost_driver_worker_and_node_cost_nothing_but_time(disturbed: Disturbed, corpus_kb: KnowledgeBase) -> None:
    rows, expected = disturbed.history, undisturbed(corpus_kb)
    assert [(row.seed, row.epoch) for row in rows] == [(seed, epoch) for seed in (0, 1) for epoch in (1, 2, 3, 4)]
    assert [(row.seed, row.epoch) for row in rows] == [(row.seed, row.epoch) for row in expected]
    # up to rounding: where arrays lie in memory decides in which order sums are taken
    for column, tolerance in (("learning_rate", 1e-9), ("loss", 1e-3), ("dev_accuracy", 0.02)):
        assert [getattr(row, column) for row in rows] == pytest.approx(
            [getattr(row, column) for row in expected], rel=tolerance
        )


def test_every_seed_is_kept_and_the_best_is_served(disturbed: Disturbed) -> None:
    folder = disturbed.kb.open("linker").path
    seeds = [load_file(folder / "seeds" / f"global.{seed}.safetensors") for seed in (0, 1)]
    best = load_file(folder / "global.safetensors")
    assert [all((best[name] == seed[name]).all() for name in best) for seed in seeds].count(True) == 1


def test_checkpoints_hold_no_pickles(disturbed: Disturbed) -> None:
    names = {Path(name).name for name in disturbed.files}
    assert {"global.0.best.safetensors", "global.0.optimizer.safetensors", "history.csv"} <= names
    assert [name for name, content in disturbed.files.items() if is_pickle(content)] == []
    assert {Path(name).suffix for name in disturbed.files} <= {".safetensors", ".json", ".csv", ""}


def test_a_list_of_checkpoints_that_a_kill_cut_short_is_forgotten(tmp_path: Path) -> None:
    snapshot = tmp_path / "checkpoint_manager_snapshot.json"
    for content, is_kept in (('{"ray_version": "2.60.0"}', True), ('{"ray_ver', False), ("", False)):
        snapshot.write_text(content)
        _forget_torn_snapshot(Location(tmp_path))
        assert snapshot.exists() == is_kept
