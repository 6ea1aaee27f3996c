"""Fits one model: loss, learning rate, steps, validation (sections 4, 5, 7)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed

from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.batching import Batch, collate, similar_sizes
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.encoding import EncodedDocument
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.model import LinkerModel, Scores, cross_entropy, margin_loss
from deeped_ray.linking.threads import document_threads
from deeped_ray.running.progress import Progress
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.history import Validation

# documents of a step are of similar size, drawn from this many steps' documents at a time
STEPS_PER_POOL = 16
# weight of the loss on the unary score, where the prior takes part in it
UNARY_WEIGHT = 0.5
Gradients = Sequence[torch.Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What a model is fitted to and validated on."""

    train: Sequence[EncodedDocument]
    dev: Sequence[EncodedDocument]
    num_dev_mentions: int
    """All that are annotated, also those whose gold entity is not a candidate."""
    word_vectors: npt.NDArray[np.float32]
    entity_vectors: Layers | npt.NDArray[np.float32]
    num_evidence: int = 0

    @classmethod
    def of(cls, documents: TrainingDocuments, inputs: LinkerInputs, *, insert_gold: bool = False) -> "Examples":
        return cls(
            train=[
                replace(encoded, weight=weight)
                for number, (document, weight) in enumerate(zip(documents.train, documents.weights, strict=True))
                # by its number a training document is kept from seeing its own annotations in the priors
                for _, encoded in inputs.encode(document, number=number, insert_gold=insert_gold)
            ],
            dev=[encoded for document in documents.dev for _, encoded in inputs.encode(document)],
            num_dev_mentions=sum(len(document.mentions) for document in documents.dev),
            word_vectors=inputs.words.vectors,
            entity_vectors=inputs.entity_vectors,
            num_evidence=inputs.num_evidence,
        )


class Fit:
    """One model, its optimiser, and what it is fitted to."""

    def __init__(
        self, name: FitName, examples: Examples, training: TrainingConfig, config: ModelConfig, run: Run
    ) -> None:
        """Starts where `run` left it."""
        torch.manual_seed(name.seed)
        self._name, self._examples, self._training, self._run = name, examples, training, run
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._rank, self._num_workers = _rank_and_world_size()
        dimension = examples.word_vectors.shape[1]
        model = LinkerModel(name.kind, config, dimension=dimension, num_evidence=examples.num_evidence)
        self.model = model.to(self._device)
        self._optimizer = _adam(self.model, training)
        if run.validations(name):
            run.restore(name, self.model, self._optimizer)

    def validations(self) -> Iterator[Validation]:
        """Fit epoch by epoch; a validation comes out as soon as `run` holds it and the model's state."""
        training, name, past = self._training, self._name, self._run.validations(self._name)
        first_epoch, seconds = (past[-1].epoch + 1, past[-1].seconds) if past else (1, 0.0)
        progress = Progress(f"train {name.kind}, seed {name.seed}", "epochs", training.epochs)
        progress.skip(first_epoch - 1)
        for epoch in range(first_epoch, training.epochs + 1):
            if is_exhausted(past, training):
                return
            start = time.monotonic()
            rates = learning_rates(past, training, epoch)
            loss = self.train_epoch(epoch, rates)
            seconds += time.monotonic() - start
            if epoch % training.validate_every == 0 or epoch == training.epochs:
                past.append(Validation(*name, epoch, rates[1], loss, self._dev_accuracy(), round(seconds, 3)))
                self._run.keep(name, self.model, self._optimizer, past[-1])
                yield past[-1]
            if self._rank == 0:
                best = max((row.dev_accuracy for row in past), default=0.0)
                progress.advance(note=f"loss {loss:.4f}, best dev accuracy {best:.1%}")

    def train_epoch(self, epoch: int, rates: tuple[float, float]) -> float:
        """One pass in an order set by seed and epoch; returns the mean loss per mention.

        The learning rate goes from the first of `rates` to the second.
        """
        total_loss, total_mentions = 0.0, 0
        rng = np.random.default_rng((self._name.seed, epoch))
        steps = steps_of(self._examples.train, rng, per_step=self._training.documents_per_step)
        num_threads = torch.get_num_threads()
        with document_threads(num_threads) as threads:
            for number, step in enumerate(steps):
                num_mentions = sum(int((document.gold >= 0).sum()) for document in step)
                if num_mentions == 0:
                    continue
                mine = step[self._rank :: self._num_workers]
                parts = [part for first in range(num_threads) if (part := mine[first::num_threads])]
                futures = [threads.submit(self._gradients, part, num_mentions) for part in parts]
                results = [future.result() for future in futures]
                rate = rates[0] * (rates[1] / rates[0]) ** (number / len(steps)) if rates[0] else 0.0
                self._step([gradients for _, gradients in results], rate)
                for loss, _ in results:
                    total_loss += loss
                total_mentions += num_mentions
        return self._sum_over_workers(total_loss) / max(1, total_mentions)

    def _gradients(self, documents: Sequence[EncodedDocument], num_mentions: int) -> tuple[float, Gradients]:
        """Loss and gradients of some of a step's documents.

        They are divided by the mentions of all of the step's documents, so that the parts add up to the step's.
        """
        batch = self._batch(documents)
        loss = loss_of(self.model(batch), batch, self._training) / num_mentions
        return loss.item() * num_mentions, torch.autograd.grad(loss, list(self.model.parameters()), allow_unused=True)

    def _step(self, parts: Sequence[Gradients], rate: float) -> None:
        """Add up the gradients of all threads and workers and move the weights."""
        for parameter, *gradients in zip(self.model.parameters(), *parts, strict=True):
            parameter.grad = torch.zeros_like(parameter)
            for gradient in gradients:
                if gradient is not None:
                    parameter.grad += gradient
            # a thousand parameters: one small all-reduce per tensor, no need for DistributedDataParallel's buckets
            if self._num_workers > 1:
                torch.distributed.all_reduce(parameter.grad)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self._optimizer.step()
        self.model.project_()

    def _dev_accuracy(self) -> float:
        """Right answers over all mentions, also those whose gold entity is not a candidate."""
        dev = self._examples.dev

        @torch.inference_mode()
        def num_right(numbers: Sequence[int]) -> int:
            batch = self._batch([dev[number] for number in numbers])
            best = self.model(batch).rho.argmax(dim=-1)
            return int(((best == batch.gold) & (batch.gold >= 0)).sum())

        with document_threads(torch.get_num_threads()) as threads:
            right = sum(threads.map(num_right, similar_sizes(dev, per_batch=16)))
        return right / max(1, self._examples.num_dev_mentions)

    def _batch(self, documents: Sequence[EncodedDocument]) -> Batch:
        return collate(documents, self._examples.word_vectors, self._examples.entity_vectors).to(self._device)

    def _sum_over_workers(self, value: float) -> float:
        total = torch.tensor(value, dtype=torch.float64, device=self._device)
        if self._num_workers > 1:
            torch.distributed.all_reduce(total)
        return float(total)


def _rank_and_world_size() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _adam(model: LinkerModel, training: TrainingConfig) -> torch.optim.Adam:
    """With full matrices as a group of their own, which learns more slowly."""
    slow = {id(parameter) for parameter in model.matrices}
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in slow) == is_slow], "share": share}
        for is_slow, share in ((True, training.matrix_rate), (False, 1.0))
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], lr=training.learning_rate)


def steps_of(
    documents: Sequence[EncodedDocument], rng: np.random.Generator, *, per_step: int
) -> list[list[EncodedDocument]]:
    """All documents in random order, cut into steps of documents of similar size."""
    order = [documents[row] for row in rng.permutation(len(documents))]
    steps = []
    for start in range(0, len(order), per_step * STEPS_PER_POOL):
        pool = order[start : start + per_step * STEPS_PER_POOL]
        steps += [[pool[place] for place in places] for places in similar_sizes(pool, per_batch=per_step)]
    return [steps[place] for place in rng.permutation(len(steps))]


def loss_of(scores: Scores, batch: Batch, training: TrainingConfig) -> torch.Tensor:
    """Summed over the mentions of the batch."""
    if training.loss == "margin":
        return margin_loss(scores.rho, batch, gamma=training.margin)
    loss = cross_entropy(scores.rho, batch)
    return loss if scores.unary is None else loss + UNARY_WEIGHT * cross_entropy(scores.unary, batch)


def is_exhausted(validations: Sequence[Validation], training: TrainingConfig) -> bool:
    """Whether `patience` epochs have brought nothing better."""
    if not validations:
        return False
    best = max(validations, key=lambda row: (row.dev_accuracy, -row.epoch))
    return validations[-1].epoch - best.epoch >= training.patience


def learning_rates(validations: Sequence[Validation], training: TrainingConfig, epoch: int) -> tuple[float, float]:
    """At the beginning and at the end of an epoch."""
    first, last = training.learning_rate, training.final_learning_rate
    if training.schedule == "drop":
        is_late = any(row.dev_accuracy > training.late_accuracy for row in validations)
        return (last, last) if is_late else (first, first)
    if not first:
        return 0.0, 0.0
    begin, end = ((epoch - 1) / training.epochs, epoch / training.epochs)
    return first * (last / first) ** begin, first * (last / first) ** end
