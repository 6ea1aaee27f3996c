"""Fits the local and the global model with Ray Train.

Reads the parts `corpus`, `words` and `vectors` and annotated documents, writes `linker`:

    local.safetensors, global.safetensors       weights with the best validation accuracy, of the best seed
    seeds/local.0.safetensors, ...              of every seed
    history.csv, curves.png                     loss and validation accuracy
    mention_counts.parquet                      annotations behind the priors of candidate lists

A killed run resumes from its last validation.
"""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from deeped_ray.evaluation.datasets import absolute_spec, dataset_path, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.linking.candidate_lists import CandidateLists, list_path
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import MENTION_COUNTS, weights_path
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.model import ModelConfig
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running import logs
from deeped_ray.running.cluster import ensure_ray, observed
from deeped_ray.running.faults import reached
from deeped_ray.running.metrics import record
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.fitting import FitName, Run, encode, fit_model, num_annotated
from deeped_ray.training.history import best_seed, read_history, summarize, write_curves, write_history
from deeped_ray.types import DeepEdError, Document

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
    data = _data_sets(kb, training)
    recorded = {
        "training": {
            **asdict(training),
            "train": _fingerprints(data["train"]),
            "dev": _fingerprints(data["dev"]),
            "train_candidates": [fingerprint(list_path(spec)) for spec in training.train_candidates],
            "dev_candidates": [fingerprint(list_path(spec)) for spec in training.dev_candidates],
        },
        "model": asdict(model),
        "candidates": asdict(candidates),
    }
    parents = ["corpus", "words", "vectors"]
    if not kb.is_current("linker", config=recorded, parents=parents):
        with kb.write("linker", config=recorded, parents=parents) as folder:
            run = resume.folder(kb, "train", [[kb.open(parent).id for parent in parents], recorded])
            loop = {"kb": str(kb), "training": training, "model": model, "candidates": candidates, **data}
            with _fit_on_ray(loop, workers, run).as_directory() as path:
                history = json.loads((Path(path) / "history.json").read_text())
                for row in history:  # workers are gone before Ray has asked them for the last ones
                    _record(row)
                (folder / "seeds").mkdir()
                for kind in training.kinds:
                    for seed in training.all_seeds:
                        fitted = Path(path) / f"{FitName(kind, seed)}.best.safetensors"
                        shutil.copy(fitted, weights_path(folder, kind, seed=seed))
                        if seed == best_seed(history, kind):
                            shutil.copy(fitted, weights_path(folder, kind))
                if training.train_candidates:
                    inputs = linker_inputs(kb, candidates, training)
                    inputs.counts.write(folder / MENTION_COUNTS, inputs.catalogue)
                write_history(history, folder / "history.csv")
                write_curves(history, folder / "curves.png")
        run.remove()
    part = kb.open("linker").path
    return {**summarize(read_history(part / "history.csv")), "history": str(part / "history.csv")}


def _fit_on_ray(loop: dict[str, Any], workers: WorkerConfig, run: Location) -> Checkpoint:
    ensure_ray()
    _forget_torn_snapshot(run)
    # reports wait for the controller's poll; its default of 2 s would dominate short epochs
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    cpus = workers.cpus_per_worker or _cpus_per_worker(workers.num_workers)
    trainer = TorchTrainer(
        _train_worker,
        train_loop_config={**loop, "num_threads": cpus, "labels": logs.labels()},
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
    result = trainer.fit()
    checkpoint: Checkpoint | None = result.checkpoint
    if checkpoint is None:
        raise DeepEdError(f"The training run in {run} ended without a checkpoint.")
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
    """What the largest node has, shared out among the workers."""
    most = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=1)
    return min(max(most // num_workers, 1), MAX_CPUS_PER_WORKER)


# -- in the workers


def _train_worker(loop: dict[str, Any]) -> None:
    """One Ray Train worker."""
    with observed(loop["labels"]._replace(shard=f"worker {ray.train.get_context().get_world_rank()}")):
        _fit_models(loop)


def _fit_models(loop: dict[str, Any]) -> None:
    """One model after the other, reporting at every validation."""
    training: TrainingConfig = loop["training"]
    torch.set_num_threads(loop["num_threads"])
    inputs = linker_inputs(KnowledgeBase(loop["kb"]), loop["candidates"], training)
    train, dev = (_read(loop[split]) for split in ("train", "dev"))
    encoded = {
        "train": encode(train, inputs, are_counted=True, insert_gold=training.insert_gold),
        "dev": encode(dev, inputs),
    }
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run()
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path:
            run.load(Path(path))
    for kind in training.kinds:
        for seed in training.all_seeds:
            for row in fit_model(
                FitName(kind, seed),
                **encoded,
                inputs=inputs,
                training=training,
                model_config=loop["model"],
                run=run,
                num_dev_mentions=num_annotated(dev),
                device=device,
            ):
                _report(run, row)


def _report(run: Run, row: dict[str, Any]) -> None:
    """Report to Ray Train from every worker, with a checkpoint from the first."""
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(row)
        return
    _record(row)
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder))
        ray.train.report(row, checkpoint=Checkpoint.from_directory(folder))
    reached(f"train/{row['model']}.{row['seed']}/{row['epoch']}")


def _record(row: dict[str, Any]) -> None:
    for name in ("loss", "dev_accuracy", "epoch"):
        record(name, row[name], stage="train", model=row["model"], seed=str(row["seed"]))


def linker_inputs(kb: KnowledgeBase, candidates: CandidateConfig, training: TrainingConfig) -> LinkerInputs:
    """With external lists, priors count the annotations of the training documents."""
    lists = [*training.train_candidates, *training.dev_candidates]
    inputs = LinkerInputs(kb, candidates, lists=lists)
    if training.train_candidates:
        inputs.counts = MentionCounts.of(_read(training.train), inputs.catalogue)
    return inputs


def _read(specs: Sequence[str]) -> list[Document]:
    return [document for spec in specs for document in read_dataset(spec)]


# -- data sets


def _data_sets(kb: KnowledgeBase, training: TrainingConfig) -> dict[str, list[str]]:
    """Absolute data-set specs; the mini encyclopedia's own documents only for its own knowledge base."""
    given = {"train": list(training.train), "dev": list(training.dev)}
    if not all(given.values()):
        if kb.open("pages").config["dumps"] != [fingerprint(MINI_DUMP)]:
            raise DeepEdError(
                "Give --train aida:FILE and --dev aida:FILE: only the mini encyclopedia has documents of its own."
            )
        given = {"train": given["train"] or ["mini:train"], "dev": given["dev"] or ["mini:dev"]}
    # a bad file is the user's to hear of now, not a worker's to die of
    for specs, lists in ((given["train"], training.train_candidates), (given["dev"], training.dev_candidates)):
        CandidateLists(lists).check(_read(specs))
    return {split: [absolute_spec(spec) for spec in specs] for split, specs in given.items()}


def _fingerprints(specs: Sequence[str]) -> list[dict[str, Any]]:
    return [fingerprint(dataset_path(spec)) for spec in specs]
