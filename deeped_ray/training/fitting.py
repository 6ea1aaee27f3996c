"""Fits one model: loss, schedule, validation, and a state that can be saved at every validation (sections 4, 5, 7)."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed
from safetensors.torch import load_file, save_file

from deeped_ray.linking.batching import Batch, EncodedDocument, similar_sizes
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.model import LinkerModel, ModelConfig, ModelKind, Scores, cross_entropy, margin_loss
from deeped_ray.linking.threads import document_threads
from deeped_ray.running.progress import Progress
from deeped_ray.training.config import TrainingConfig
from deeped_ray.types import Document

# documents of a step are of similar size, drawn from this many steps' documents at a time
STEPS_PER_POOL = 16
# weight of the loss on the unary score, where the prior takes part in it
UNARY_WEIGHT = 0.5
Tensors = dict[str, torch.Tensor]
Collate = Callable[[Sequence[EncodedDocument]], Batch]


class FitName(NamedTuple):
    """Which of a run's models."""

    kind: ModelKind
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.seed}"


@dataclass
class Run:
    """Everything a checkpoint holds: the state of each model's fit and the history of validations."""

    fits: dict[str, dict[str, Tensors]] = field(default_factory=dict)
    """Name of a fit -> "last", "best", "optimizer" -> named tensors."""
    history: list[dict[str, Any]] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        for name, states in self.fits.items():
            for state, tensors in states.items():
                contiguous = {key: tensor.contiguous() for key, tensor in tensors.items()}
                save_file(contiguous, folder / f"{name}.{state}.safetensors")
        (folder / "history.json").write_text(json.dumps(self.history))

    def load(self, folder: Path) -> None:
        self.history = json.loads((folder / "history.json").read_text())
        for path in folder.glob("*.safetensors"):
            name, state, _ = path.name.rsplit(".", 2)
            self.fits.setdefault(name, {})[state] = load_file(path)

    def validations(self, name: FitName) -> list[dict[str, Any]]:
        return [row for row in self.history if (row["model"], row["seed"]) == name]


def encode(
    documents: Sequence[Document], inputs: LinkerInputs, *, are_counted: bool = False, insert_gold: bool = False
) -> list[EncodedDocument]:
    """Documents in the linker's windows; a mention seen by two has its gold entity in the one that answers.

    `are_counted` says that priors know the documents' annotations, and must not use them.
    """
    encoded = []
    for number, document in enumerate(documents):
        for window, seen in inputs.encode(document, number=number if are_counted else None, insert_gold=insert_gold):
            encoded.append(seen.without_gold([i for i, answered in enumerate(window.is_answered) if not answered]))
    return encoded


def num_annotated(documents: Sequence[Document]) -> int:
    return sum(len(document.mentions) for document in documents)


def fit_model(
    name: FitName,
    train: Sequence[EncodedDocument],
    dev: Sequence[EncodedDocument],
    inputs: LinkerInputs,
    training: TrainingConfig,
    model_config: ModelConfig,
    run: Run,
    *,
    num_dev_mentions: int,
    device: torch.device,
) -> Iterator[dict[str, Any]]:
    """Fit one model from where `run` left it; yields the newest history row after every validation."""
    torch.manual_seed(name.seed)
    model = LinkerModel(name.kind, model_config, dimension=inputs.words.vectors.shape[1]).to(device)
    optimizer = optimizer_of(model, training)
    validations = run.validations(name)
    if validations:
        model.load_state_dict(run.fits[str(name)]["last"])
        _load_optimizer(optimizer, run.fits[str(name)]["optimizer"])
    first_epoch = validations[-1]["epoch"] + 1 if validations else 1
    progress = Progress(f"train {name.kind}, seed {name.seed}", "epochs", training.epochs)
    progress.skip(first_epoch - 1)
    best = max((row["dev_accuracy"] for row in validations), default=-1.0)
    seconds = validations[-1]["seconds"] if validations else 0.0
    is_first = _rank_and_world_size()[0] == 0
    for epoch in range(first_epoch, training.epochs + 1):
        if is_exhausted(run.validations(name), training):
            return
        start = time.monotonic()
        rates = _learning_rates(run.validations(name), training, epoch)
        loss = train_epoch(model, optimizer, train, inputs.collate, training, (name.seed, epoch), rates, device)
        seconds += time.monotonic() - start
        if epoch % training.validate_every == 0 or epoch == training.epochs:
            accuracy = dev_accuracy(model, dev, inputs.collate, device, num_mentions=num_dev_mentions)
            states = run.fits.setdefault(str(name), {})
            states["last"], states["optimizer"] = _copy(model.state_dict()), _optimizer_tensors(optimizer)
            if accuracy > best:
                best, states["best"] = accuracy, states["last"]
            run.history.append(
                {
                    "model": name.kind,
                    "seed": name.seed,
                    "epoch": epoch,
                    "learning_rate": rates[1],
                    "loss": loss,
                    "dev_accuracy": accuracy,
                    "seconds": round(seconds, 3),
                }
            )
            yield run.history[-1]
        if is_first:
            progress.advance(note=f"loss {loss:.4f}, best dev accuracy {max(best, 0):.1%}")


def optimizer_of(model: LinkerModel, training: TrainingConfig) -> torch.optim.Adam:
    """Adam, with full matrices as a group of their own."""
    slow = {id(parameter) for parameter in model.matrices}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in slow) == is_slow], "share": share}
        for is_slow, share in ((True, training.matrix_rate), (False, 1.0))
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], lr=training.learning_rate)


def train_epoch(
    model: LinkerModel,
    optimizer: torch.optim.Optimizer,
    documents: Sequence[EncodedDocument],
    collate: Collate,
    training: TrainingConfig,
    seed_and_epoch: tuple[int, int],
    rates: tuple[float, float],
    device: torch.device,
) -> float:
    """One pass in an order set by seed and epoch, at learning rates from the first to the second.

    Returns the mean loss per mention.
    """
    rank, world_size = _rank_and_world_size()
    total_loss, total_mentions = 0.0, 0
    parameters = list(model.parameters())
    steps = steps_of(documents, np.random.default_rng(seed_and_epoch), per_step=training.documents_per_step)

    def gradients(mine: Sequence[EncodedDocument], num_mentions: int) -> tuple[float, Sequence[torch.Tensor | None]]:
        """Of some of a step's documents, divided by the mentions of all, so that the parts add up to the step's."""
        batch = collate(mine).to(device)
        loss = loss_of(model(batch), batch, training) / num_mentions
        return loss.item() * num_mentions, torch.autograd.grad(loss, parameters, allow_unused=True)

    num_threads = torch.get_num_threads()
    with document_threads(num_threads) as threads:
        for number, step in enumerate(steps):
            num_mentions = sum(int((documents[row].gold >= 0).sum()) for row in step)
            if num_mentions == 0:
                continue
            mine = [documents[row] for row in step[rank::world_size]]
            parts = [part for first in range(num_threads) if (part := mine[first::num_threads])]
            futures = [threads.submit(gradients, part, num_mentions) for part in parts]
            optimizer.zero_grad(set_to_none=False)
            for loss, part_gradients in (future.result() for future in futures):
                total_loss += loss
                _add_gradients(parameters, part_gradients)
            _sum_gradients(parameters, world_size)
            rate = rates[0] * (rates[1] / rates[0]) ** (number / len(steps)) if rates[0] else 0.0
            _set_learning_rate(optimizer, rate)
            optimizer.step()
            model.project_()
            total_mentions += num_mentions
    return _sum_over_workers(total_loss, world_size, device) / max(1, total_mentions)


def steps_of(documents: Sequence[EncodedDocument], rng: np.random.Generator, *, per_step: int) -> list[list[int]]:
    """All documents in random order, cut into steps of documents of similar size."""
    order, steps = rng.permutation(len(documents)).tolist(), []
    for start in range(0, len(order), per_step * STEPS_PER_POOL):
        pool = order[start : start + per_step * STEPS_PER_POOL]
        sizes = [documents[row] for row in pool]
        steps += [[pool[place] for place in places] for places in similar_sizes(sizes, per_batch=per_step)]
    return [steps[place] for place in rng.permutation(len(steps))]


def loss_of(scores: Scores, batch: Batch, training: TrainingConfig) -> torch.Tensor:
    """Summed over the mentions of the batch."""
    if training.loss == "margin":
        return margin_loss(scores.rho, batch, gamma=training.margin)
    loss = cross_entropy(scores.rho, batch)
    return loss if scores.unary is None else loss + UNARY_WEIGHT * cross_entropy(scores.unary, batch)


def dev_accuracy(
    model: LinkerModel,
    documents: Sequence[EncodedDocument],
    collate: Collate,
    device: torch.device,
    *,
    num_mentions: int,
) -> float:
    """Right answers over all mentions, those without their gold entity included."""

    @torch.inference_mode()
    def correct(numbers: Sequence[int]) -> int:
        batch = collate([documents[number] for number in numbers]).to(device)
        best = model(batch).rho.argmax(dim=-1)
        return int(((best == batch.gold) & (batch.gold >= 0)).sum())

    with document_threads(torch.get_num_threads()) as threads:
        return sum(threads.map(correct, similar_sizes(documents, per_batch=16))) / max(1, num_mentions)


def is_exhausted(validations: Sequence[dict[str, Any]], training: TrainingConfig) -> bool:
    if not validations:
        return False
    best = max(validations, key=lambda row: (row["dev_accuracy"], -row["epoch"]))
    return bool(validations[-1]["epoch"] - best["epoch"] >= training.patience)


def _learning_rates(validations: Sequence[dict[str, Any]], training: TrainingConfig, epoch: int) -> tuple[float, float]:
    """At the beginning and at the end of an epoch."""
    first, last = training.learning_rate, training.final_learning_rate
    if training.schedule == "drop":
        is_late = any(row["dev_accuracy"] > training.late_accuracy for row in validations)
        return (last, last) if is_late else (first, first)
    if not first:
        return 0.0, 0.0
    begin, end = ((epoch - 1) / training.epochs, epoch / training.epochs)
    return first * (last / first) ** begin, first * (last / first) ** end


def _set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


# -- gradients over workers


def _rank_and_world_size() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _add_gradients(parameters: Sequence[torch.nn.Parameter], gradients: Sequence[torch.Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _sum_gradients(parameters: Sequence[torch.nn.Parameter], world_size: int) -> None:
    """A thousand parameters: one small all-reduce per tensor, no need for DistributedDataParallel's buckets."""
    for parameter in parameters:
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


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """Adam's state as named tensors, so that it fits safetensors."""
    state = optimizer.state_dict()["state"]
    return _copy({f"{index}.{name}": tensor for index, entry in state.items() for name, tensor in entry.items()})


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    state: dict[int, Tensors] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
