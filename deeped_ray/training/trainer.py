"""Fits the local and the global model with Ray Train.

Reads the parts `corpus`, `words`, `vectors` and `index` and annotated documents, writes `linker`:

    local.safetensors, global.safetensors       weights with the best validation accuracy, of the best seed
    seeds/local.0.safetensors, ...              of every seed
    history.csv, curves.png                     loss and validation accuracy
    mention_counts.parquet                      annotations behind the priors of candidate lists

If a run is killed, the same command goes on from its last validation.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution import context as ray_context
from safetensors.numpy import load_file, save_file

from deeped_ray.evaluation.datasets import identity
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.knowledge.parts import Part
from deeped_ray.linking.candidate_lists import CandidateLists, list_path
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.detection import WEIGHTS as DETECTION_WEIGHTS
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import (
    MENTION_COUNTS,
    certainty_path,
    is_prior_alone,
    weights_path,
)
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.running import logs, tasks
from deeped_ray.running.cluster import ensure_ray, observed
from deeped_ray.running.faults import reached
from deeped_ray.running.metrics import record
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.documents import LEAST_MENTIONS, TrainingDocuments, training_identity, with_defaults
from deeped_ray.training.history import HISTORY, Validation, best_seed, models_of, read_history, summarize, write_curves
from deeped_ray.training.job import FitJob, certainty, detection
from deeped_ray.training.leftovers import freed
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)
MAX_CPUS_PER_WORKER = 8


def train_linker(
    kb: KnowledgeBase,
    training: TrainingConfig,
    model: ModelConfig,
    candidates: CandidateConfig,
    workers: WorkerConfig,
    resume: ResumeConfig = NEW_RUN,
) -> dict[str, Any]:
    """Make the linker part unless it is there already; returns the best validation accuracy of each model."""
    if training.insert_gold and candidates.retrieves:
        raise DeepEdError("`insert_gold` is for the paper's candidates: set `sources` and `evidence` to prior as well.")
    training = with_defaults(kb, training)
    recorded = {
        "training": {
            **asdict(training),
            "train": [training_identity(spec) for spec in training.train],
            "dev": [identity(spec) for spec in training.dev],
            "train_candidates": [fingerprint(list_path(spec)) for spec in training.train_candidates],
            "dev_candidates": [fingerprint(list_path(spec)) for spec in training.dev_candidates],
        },
        "model": asdict(model),
        "candidates": asdict(candidates),
    }
    parents = ("corpus", "words", "vectors", *(["index"] if candidates.retrieves else []))
    if not kb.is_current("linker", config=recorded, parents=parents):
        with kb.write("linker", config=recorded, parents=parents) as folder:
            job = _prepare(kb, training, model, candidates, folder)
            run = resume.folder(kb, "train", [[kb.open(parent).id for parent in parents], recorded])
            history = _fit(job, workers, run, folder)
            _calibrate(job, history, folder)
            _fit_detection(job, folder)
        run.remove()
    return _summary(kb.open("linker"))


def _fit(job: FitJob, workers: WorkerConfig, run: Location, folder: Path) -> list[Validation]:
    """Fill the part with models; without enough documents there are none, and the linker links by prior alone."""
    if job.documents.teach(job.inputs().catalogue):
        return _keep_best(_fit_on_ray(job, workers, run), job.training, folder)
    logger.warning(
        "fewer than %d links, examples or annotations lead to entities of this knowledge base: the linker answers by the prior alone. Give --train or --documents to train a model.",
        LEAST_MENTIONS,
    )
    Location(folder / "summary.json").write_json({"models": []})
    return []


def _summary(part: Part) -> dict[str, Any]:
    if is_prior_alone(part):
        return {"models": [], "dev_accuracy": {}}
    history = read_history(part.path / HISTORY)
    return {**summarize(history), "history": str(part.path / HISTORY)}


def _prepare(
    kb: KnowledgeBase, training: TrainingConfig, model: ModelConfig, candidates: CandidateConfig, folder: Path
) -> FitJob:
    """Read and check all files here, in the driver: a mistake in one of them ends the job with one line that names it."""
    documents = TrainingDocuments.read(kb, training)
    lists, counts = CandidateLists([*training.train_candidates, *training.dev_candidates]), MentionCounts()
    if training.dev_candidates:
        lists.check(documents.dev)
    if training.train_candidates:
        lists.check(documents.train)
        catalogue = LinkerInputs(kb, candidates, lists=lists).catalogue
        counts = MentionCounts.of(documents.train, catalogue)
        counts.write(folder / MENTION_COUNTS, catalogue)
    return FitJob(
        kb=str(kb),
        training=training,
        model=model,
        candidates=candidates,
        documents=documents,
        lists=lists,
        counts=counts,
        labels=logs.labels(),
    )


def _keep_best(checkpoint: Checkpoint, training: TrainingConfig, folder: Path) -> list[Validation]:
    """Fill the part from the last checkpoint of the run."""
    with checkpoint.as_directory() as path:
        shutil.copy(Path(path) / HISTORY, folder)
        history = read_history(folder / HISTORY)
        (folder / "seeds").mkdir()
        for kind in training.kinds:
            for seed in training.all_seeds:
                shutil.copy(
                    Path(path) / f"{FitName(kind, seed)}.best.safetensors", weights_path(folder, kind, seed=seed)
                )
            shutil.copy(weights_path(folder, kind, seed=best_seed(history, kind)), weights_path(folder, kind))
    write_curves(history, folder / "curves.png")
    for validation in history:  # workers are gone before Ray has asked them for the last ones
        _record(validation)
    return history


def _calibrate(job: FitJob, history: Sequence[Validation], folder: Path) -> None:
    """How sure every model may be, and the prior alone."""
    names = [FitName(kind, seed) for kind in models_of(history) for seed in job.training.all_seeds]
    weights = [load_file(weights_path(folder, name.kind, seed=name.seed)) for name in names]
    calibrated = replace(job, documents=replace(job.documents, train=[], weights=[], dev=[], annotated=[]))
    done = tasks.run("calibrate", certainty, [None, *zip(names, weights, strict=True)], calibrated, unit="models")
    for name, found in zip([None, *names], done.results, strict=True):
        if found is not None:
            save_file(found, certainty_path(folder, *name) if name else certainty_path(folder, "prior"))
    for kind in models_of(history):
        best = certainty_path(folder, kind, seed=best_seed(history, kind))
        if best.exists():
            shutil.copy(best, certainty_path(folder, kind))


def _fit_detection(job: FitJob, folder: Path) -> None:
    """How mentions are found in raw text."""
    (fitted,) = tasks.run("detection", detection, [job.training.seed], job, unit="fits").results
    save_file(fitted.weights, folder / DETECTION_WEIGHTS)
    if fitted.f1:
        f1 = ", ".join(f"{kind.removesuffix('_f1')} {value:.1%}" for kind, value in fitted.f1.items())
        logger.info("detection: F1 on documents kept aside: %s", f1)


def _fit_on_ray(job: FitJob, workers: WorkerConfig, run: Location) -> Checkpoint:
    ensure_ray()
    _forget_torn_snapshot(run)
    # reports wait for the controller's poll; its default of 2 s would dominate short epochs
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    cpus = workers.cpus_per_worker or _cpus_per_worker(workers.num_workers)
    trainer = TorchTrainer(
        # not as `train_loop_config`, which Ray also copies into its records of the run
        partial(_fit_models, job, cpus),
        scaling_config=ScalingConfig(
            num_workers=workers.num_workers,
            use_gpu=workers.use_gpu,
            resources_per_worker={"CPU": cpus, **({"GPU": 1} if workers.use_gpu else {})},
        ),
        run_config=RunConfig(  # type: ignore[call-arg]  # Ray's annotations are those of Train v1
            name=run.name,
            storage_path=str(run.parent),
            failure_config=FailureConfig(max_failures=workers.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            # else it says two lines a validation, as text, between our own
            logging_config=LoggingConfig(log_level="WARNING"),
        ),
    )
    with freed(run):
        checkpoint: Checkpoint | None = trainer.fit().checkpoint
    if checkpoint is None:
        raise DeepEdError(f"The training run in {run} ended without a checkpoint. Remove the folder and run it again.")
    return checkpoint


def _forget_torn_snapshot(run: Location) -> None:
    """Ray writes its list of checkpoints in place. If a kill cut it short, no run with this folder could start again."""
    snapshot = run / "checkpoint_manager_snapshot.json"
    try:
        if snapshot.exists():
            snapshot.read_json()
    except ValueError:
        logger.warning("%s was cut short by a kill. Training starts again from the first epoch.", snapshot)
        snapshot.remove()


def _cpus_per_worker(num_workers: int) -> int:
    """The CPUs of the largest node, shared out among the workers."""
    most = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=1)
    return min(max(most // num_workers, 1), MAX_CPUS_PER_WORKER)


# -- in the workers


def _fit_models(job: FitJob, num_threads: int) -> None:
    """With a report to Ray Train at every validation."""
    torch.set_num_threads(num_threads)
    # this logger of Ray Train has the name of its file, so `LoggingConfig` does not reach it
    logging.getLogger(ray_context.__file__).setLevel(logging.WARNING)
    with observed(job.labels._replace(shard=f"worker {ray.train.get_context().get_world_rank()}")):
        run = _run_so_far()
        for validation in job.validations(run):
            _report(run, validation)


def _run_so_far() -> Run:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return Run()
    with checkpoint.as_directory() as path:
        return Run.load(Path(path))


def _report(run: Run, validation: Validation) -> None:
    """Report to Ray Train from every worker, with a checkpoint from the first."""
    rank = ray.train.get_context().get_world_rank()
    if rank:
        ray.train.report(validation._asdict())
    else:
        _record(validation)
        with tempfile.TemporaryDirectory() as folder:
            run.save(Path(folder))
            ray.train.report(validation._asdict(), checkpoint=Checkpoint.from_directory(folder))
    reached(f"train/{validation.model}.{validation.seed}/{validation.epoch}/{rank}")


def _record(validation: Validation) -> None:
    for name in ("loss", "dev_accuracy", "epoch"):
        record(name, getattr(validation, name), stage="train", model=validation.model, seed=str(validation.seed))
