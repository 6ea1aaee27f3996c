"""Fits the local and the global model with Ray Train: loss, schedule, checkpoints (sections 4, 5 and 7).

Reads the parts `corpus`, `words` and `vectors` and annotated documents, writes `linker`: `local.safetensors`,
`global.safetensors` (the weights with the best validation accuracy) and `history.csv`. A killed run
resumes from its last validation.
"""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import ray.train
import torch
import torch.distributed
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from safetensors.torch import load_file, save_file

from deeped_ray.artifacts import NEW_RUN, KnowledgeBase, ResumeConfig, fingerprint
from deeped_ray.evaluation.datasets import absolute_spec, dataset_path, read_dataset
from deeped_ray.linking.batching import Batch, EncodedMention, collate
from deeped_ray.linking.candidate_lists import CandidateLists, list_path
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.linker import MENTION_COUNTS, LinkerInputs, joint_runs
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.model import LinkerModel, ModelConfig, ModelKind, cross_entropy, margin_loss
from deeped_ray.mini import MINI_DUMP
from deeped_ray.progress import Progress
from deeped_ray.spread import ensure_ray
from deeped_ray.types import DeepEdError, Document

EncodedDocument = list[EncodedMention]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Fitting the model; the paper's values."""

    train: Annotated[
        tuple[str, ...],
        "training documents, as aida:FILE, wned:FOLDER or jsonl:FILE; default with the mini encyclopedia: its own",
    ] = ()
    dev: Annotated[tuple[str, ...], "validation documents, likewise; default with the mini encyclopedia: its own"] = ()
    train_candidates: Annotated[tuple[str, ...], "external candidate lists of the training documents: ppr:FILE"] = ()
    dev_candidates: Annotated[tuple[str, ...], "external candidate lists of the validation documents"] = ()
    model: Annotated[Literal["both", "local", "global"], "which models to fit"] = "both"
    loss: Annotated[Literal["margin", "cross-entropy"], "the paper's ranking loss, or cross-entropy"] = "margin"
    margin: Annotated[float, "gamma of the ranking loss"] = 0.01
    learning_rate: Annotated[float, "Adam's learning rate"] = 1e-4
    late_learning_rate: Annotated[float, "learning rate once validation accuracy passes --late-accuracy"] = 1e-5
    final_learning_rate: Annotated[
        float | None, "fall to this, by the same factor every epoch, instead of dropping once"
    ] = None
    late_accuracy: Annotated[float, "validation accuracy at which the learning rate drops"] = 0.9
    epochs: Annotated[int, "most passes over the training documents"] = 1250
    validate_every: Annotated[int, "epochs between validations; each also writes a checkpoint"] = 5
    patience: Annotated[int, "stop after this many epochs without a better validation accuracy"] = 500
    documents_per_step: Annotated[int, "documents in one optimiser step"] = 1
    seed: Annotated[int, "seeds initial weights and the order of documents"] = 0

    def __post_init__(self) -> None:
        if min(self.epochs, self.validate_every, self.patience, self.documents_per_step) < 1:
            raise DeepEdError("Epochs, --validate-every, --patience and --documents-per-step must be at least 1.")
        if self.train_candidates and not self.dev_candidates:
            raise DeepEdError("--train-candidates without --dev-candidates: both sets must be seen alike.")
        if self.final_learning_rate is not None and self.final_learning_rate <= 0:
            raise DeepEdError("--final-learning-rate must be positive.")
        if self.margin <= 0 or min(self.learning_rate, self.late_learning_rate) < 0:
            raise DeepEdError("--margin must be positive and learning rates must not be negative.")

    @property
    def kinds(self) -> list[ModelKind]:
        return ["local", "global"] if self.model == "both" else [self.model]


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Ray Train's workers; changes nothing in the result but rounding."""

    num_workers: Annotated[int, "data-parallel workers"] = 1
    use_gpu: Annotated[bool, "give every worker a GPU"] = False
    max_failures: Annotated[int, "lost workers to survive by going back to the last checkpoint"] = 3


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
            loop = {"kb": str(kb.root), "training": training, "model": model, "candidates": candidates, **data}
            with _fit_on_ray(loop, workers, run).as_directory() as path:
                for kind in training.kinds:
                    shutil.copy(Path(path) / f"{kind}.best.safetensors", folder / f"{kind}.safetensors")
                if training.train_candidates:
                    inputs = linker_inputs(kb, candidates, training)
                    inputs.counts.write(folder / MENTION_COUNTS, inputs.catalogue)
                _write_history(json.loads((Path(path) / "history.json").read_text()), folder / "history.csv")
        shutil.rmtree(run)
    with open(kb.open("linker").path / "history.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    best = {kind: max(float(row["dev_accuracy"]) for row in rows if row["model"] == kind) for kind in training.kinds}
    epochs = {kind: max(int(row["epoch"]) for row in rows if row["model"] == kind) for kind in training.kinds}
    return {"dev_accuracy": best, "epochs": epochs}


def _fit_on_ray(loop: dict[str, Any], workers: WorkerConfig, run: Path) -> Checkpoint:
    ensure_ray()
    # reports wait for the controller's poll; its default of 2 s would dominate short epochs
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    trainer = TorchTrainer(
        _train_worker,
        train_loop_config=loop,
        scaling_config=ScalingConfig(num_workers=workers.num_workers, use_gpu=workers.use_gpu),
        run_config=RunConfig(
            name=run.name,
            storage_path=str(run.parent),
            failure_config=FailureConfig(max_failures=workers.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    checkpoint: Checkpoint | None = result.checkpoint
    if checkpoint is None:
        raise DeepEdError(f"The training run in {run} ended without a checkpoint.")
    return checkpoint


# -- in the workers


def _train_worker(loop: dict[str, Any]) -> None:
    """One Ray Train worker: fits one model after the other, reporting at every validation."""
    training: TrainingConfig = loop["training"]
    inputs = linker_inputs(KnowledgeBase(loop["kb"]), loop["candidates"], training)
    train = [document for spec in loop["train"] for document in read_dataset(spec)]
    dev = [document for spec in loop["dev"] for document in read_dataset(spec)]
    documents = {"train": encode(train, inputs, are_counted=True), "dev": encode(dev, inputs, are_counted=False)}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(training)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path:
            run.load(Path(path))
    for kind in training.kinds:
        for fit in fit_model(
            kind, documents["train"], documents["dev"], inputs, training, loop["model"], run, device=device
        ):
            _report(run, fit)


def linker_inputs(kb: KnowledgeBase, candidates: CandidateConfig, training: TrainingConfig) -> LinkerInputs:
    """With external lists, priors count the annotations of the training documents."""
    lists = [*training.train_candidates, *training.dev_candidates]
    inputs = LinkerInputs(kb, candidates, lists=lists)
    if training.train_candidates:
        documents = [document for spec in training.train for document in read_dataset(spec)]
        inputs.counts = MentionCounts.of(documents, inputs.catalogue)
    return inputs


def encode(documents: Sequence[Document], inputs: LinkerInputs, *, are_counted: bool) -> list[EncodedDocument]:
    """Documents as the linker cuts and sees them; `are_counted` says that priors know their annotations, and must not."""
    encoded = [
        (inputs.encode(document, number=number if are_counted else None), joint_runs(document.mentions))
        for number, document in enumerate(documents)
    ]
    return [[mentions[i] for i in run] for mentions, runs in encoded for run in runs]


@dataclass
class Run:
    """Everything a checkpoint holds: the state of each model's fit and the history of validations."""

    training: TrainingConfig
    fits: dict[str, dict[str, dict[str, torch.Tensor]]] = field(default_factory=dict)
    """Model kind -> "last", "best", "optimizer" -> named tensors."""
    history: list[dict[str, Any]] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        for kind, states in self.fits.items():
            for name, tensors in states.items():
                save_file(
                    {key: tensor.contiguous() for key, tensor in tensors.items()}, folder / f"{kind}.{name}.safetensors"
                )
        (folder / "history.json").write_text(json.dumps(self.history))

    def load(self, folder: Path) -> None:
        self.history = json.loads((folder / "history.json").read_text())
        for path in folder.glob("*.safetensors"):
            kind, name, _ = path.name.split(".")
            self.fits.setdefault(kind, {})[name] = load_file(path)

    def validations(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.history if row["model"] == kind]


def fit_model(
    kind: ModelKind,
    train: Sequence[EncodedDocument],
    dev: Sequence[EncodedDocument],
    inputs: LinkerInputs,
    training: TrainingConfig,
    model_config: ModelConfig,
    run: Run,
    *,
    device: torch.device,
) -> Iterator[dict[str, Any]]:
    """Fit one model from where `run` left it; yields the newest history row after every validation."""
    torch.manual_seed(training.seed)
    model = LinkerModel(kind, model_config, dimension=inputs.words.vectors.shape[1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    validations = run.validations(kind)
    if validations:
        model.load_state_dict(run.fits[kind]["last"])
        _load_optimizer(optimizer, run.fits[kind]["optimizer"])
    first_epoch = validations[-1]["epoch"] + 1 if validations else 1
    progress = Progress(f"train {kind}", "epochs", training.epochs)
    progress.skip(first_epoch - 1)
    best = max((row["dev_accuracy"] for row in validations), default=-1.0)
    is_first = _rank_and_world_size()[0] == 0
    for epoch in range(first_epoch, training.epochs + 1):
        if _is_exhausted(run.validations(kind), training):
            return
        _set_learning_rate(optimizer, run.validations(kind), training, epoch)
        loss = _train_epoch(model, optimizer, train, inputs, training, epoch, device)
        if is_first:
            progress.advance(note=f"loss {loss:.4f}, best dev accuracy {max(best, 0):.1%}")
        if epoch % training.validate_every == 0 or epoch == training.epochs:
            accuracy = dev_accuracy(model, dev, inputs, device)
            states = run.fits.setdefault(kind, {})
            states["last"], states["optimizer"] = _copy(model.state_dict()), _optimizer_tensors(optimizer)
            if accuracy > best:
                best, states["best"] = accuracy, states["last"]
            run.history.append({"model": kind, "epoch": epoch, "loss": loss, "dev_accuracy": accuracy})
            yield run.history[-1]


def _train_epoch(
    model: LinkerModel,
    optimizer: torch.optim.Optimizer,
    documents: Sequence[EncodedDocument],
    inputs: LinkerInputs,
    training: TrainingConfig,
    epoch: int,
    device: torch.device,
) -> float:
    """One pass in an order set by seed and epoch; returns the mean loss per mention."""
    order = np.random.default_rng([training.seed, epoch]).permutation(len(documents))
    rank, world_size = _rank_and_world_size()
    total_loss, total_mentions = 0.0, 0
    for start in range(0, len(order), training.documents_per_step):
        step = [documents[row] for row in order[start : start + training.documents_per_step]]
        num_mentions = sum(mention.gold >= 0 for document in step for mention in document)
        if num_mentions == 0:
            continue
        optimizer.zero_grad(set_to_none=False)
        mine = step[rank::world_size]
        if mine:
            batch = to_device(collate(mine, inputs.words.vectors, inputs.entity_vectors), device)
            # divided by the mentions of the whole step, so that the workers' gradients add up to the step's
            rho = model(batch).rho
            total = (
                cross_entropy(rho, batch)
                if training.loss == "cross-entropy"
                else margin_loss(rho, batch, gamma=training.margin)
            )
            loss = total / num_mentions
            loss.backward()
            total_loss += loss.item() * num_mentions
        _sum_gradients(model, world_size)
        optimizer.step()
        model.project_()
        total_mentions += num_mentions
    return _sum_over_workers(total_loss, world_size, device) / max(1, total_mentions)


@torch.inference_mode()
def dev_accuracy(
    model: LinkerModel, documents: Sequence[EncodedDocument], inputs: LinkerInputs, device: torch.device
) -> float:
    """Right answers over all mentions, those without their gold entity included."""
    correct = 0
    for document in documents:
        batch = to_device(collate([document], inputs.words.vectors, inputs.entity_vectors), device)
        best = model(batch).rho.argmax(dim=-1)
        correct += int(((best == batch.gold) & (batch.gold >= 0)).sum())
    return correct / max(1, sum(map(len, documents)))


def to_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(**{name: tensor.to(device) for name, tensor in vars(batch).items()})


def _is_exhausted(validations: Sequence[dict[str, Any]], training: TrainingConfig) -> bool:
    if not validations:
        return False
    best = max(validations, key=lambda row: (row["dev_accuracy"], -row["epoch"]))
    return bool(validations[-1]["epoch"] - best["epoch"] >= training.patience)


def _set_learning_rate(
    optimizer: torch.optim.Optimizer, validations: Sequence[dict[str, Any]], training: TrainingConfig, epoch: int
) -> None:
    is_late = any(row["dev_accuracy"] > training.late_accuracy for row in validations)
    rate = training.late_learning_rate if is_late else training.learning_rate
    if training.final_learning_rate is not None:
        progress = (epoch - 1) / max(training.epochs - 1, 1)
        rate = training.learning_rate * (training.final_learning_rate / training.learning_rate) ** progress
    for group in optimizer.param_groups:
        group["lr"] = rate


def _report(run: Run, row: dict[str, Any]) -> None:
    """Report to Ray Train from every worker, with a checkpoint from the first."""
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(row)
        return
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder))
        ray.train.report(row, checkpoint=Checkpoint.from_directory(folder))


# -- gradients over workers


def _rank_and_world_size() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _sum_gradients(model: LinkerModel, world_size: int) -> None:
    """A thousand parameters: one small all-reduce per tensor, no need for DistributedDataParallel's buckets."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if world_size > 1:
            torch.distributed.all_reduce(parameter.grad)


def _sum_over_workers(value: float, world_size: int, device: torch.device) -> float:
    if world_size == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)
    return float(total)


# -- state


def _copy(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Adam's state as named tensors, so that it fits safetensors."""
    state = optimizer.state_dict()["state"]
    return _copy({f"{index}.{name}": tensor for index, entry in state.items() for name, tensor in entry.items()})


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _write_history(history: list[dict[str, Any]], path: Path) -> None:
    with open(path, "w", newline="") as handle:
        writer = csv.DictWriter(handle, ["model", "epoch", "loss", "dev_accuracy"])
        writer.writeheader()
        writer.writerows(history)


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
        CandidateLists(lists).check([document for spec in specs for document in read_dataset(spec)])
    return {split: [absolute_spec(spec) for spec in specs] for split, specs in given.items()}


def _fingerprints(specs: Sequence[str]) -> list[dict[str, Any]]:
    return [fingerprint(dataset_path(spec)) for spec in specs]
