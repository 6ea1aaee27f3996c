"""The history of a training run: its validations, as a CSV file, a picture, and means over seeds."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from deeped_ray.evaluation.metrics import mean_and_interval
from deeped_ray.linking.config import ModelKind

HISTORY = "history.csv"


class Validation(NamedTuple):
    """One validation of one model: a line of history.csv."""

    model: ModelKind
    seed: int
    epoch: int
    learning_rate: float
    loss: float
    dev_accuracy: float
    seconds: float
    """Time spent in training steps so far."""


def write_history(history: Sequence[Validation], path: Path) -> None:
    with open(path, "w", newline="") as handle:
        csv.writer(handle).writerows([Validation._fields, *history])


def read_history(path: Path) -> list[Validation]:
    with open(path, newline="") as handle:
        rows = list(csv.reader(handle))[1:]
    return [
        Validation(cast(ModelKind, model), int(seed), int(epoch), *map(float, rest))
        for model, seed, epoch, *rest in rows
    ]


def best_by_seed(history: Sequence[Validation], model: str) -> dict[int, float]:
    """Best validation accuracy of every seed."""
    best: dict[int, float] = {}
    for row in history:
        if row.model == model:
            best[row.seed] = max(row.dev_accuracy, best.get(row.seed, 0.0))
    return best


def best_seed(history: Sequence[Validation], model: str) -> int:
    """The first of the seeds with the highest validation accuracy."""
    best = best_by_seed(history, model)
    return max(best, key=lambda seed: (best[seed], -seed))


def summarize(history: Sequence[Validation]) -> dict[str, Any]:
    """For every model the best validation accuracy (the mean over seeds, and its interval), and the epochs it took."""
    summary: dict[str, Any] = {"dev_accuracy": {}, "epochs": {}}
    for model in models_of(history):
        by_seed = best_by_seed(history, model)
        mean, interval = mean_and_interval(list(by_seed.values()))
        summary["dev_accuracy"][model] = round(mean, 4)
        summary["epochs"][model] = max(row.epoch for row in history if row.model == model)
        if len(by_seed) > 1:
            summary.setdefault("interval", {})[model] = round(interval, 4)
            summary.setdefault("by_seed", {})[model] = {seed: round(value, 4) for seed, value in by_seed.items()}
    return summary


def models_of(history: Sequence[Validation]) -> list[ModelKind]:
    return list(dict.fromkeys(row.model for row in history))


def write_curves(history: Sequence[Validation], path: Path) -> None:
    """Loss and validation accuracy against epochs, a line for every seed."""
    # imported here because it takes a second, which only training should pay
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    titles = {"loss": "training loss per mention", "dev_accuracy": "validation accuracy"}
    for axes, (column, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for color, model in zip(("tab:blue", "tab:orange"), models_of(history), strict=False):
            for number, seed in enumerate(best_by_seed(history, model)):
                rows = [row for row in history if row.model == model and row.seed == seed]
                epochs, values = [row.epoch for row in rows], [getattr(row, column) for row in rows]
                label = None if number else model
                axes.plot(epochs, values, color=color, marker=".", alpha=0.7, label=label)
        axes.set_xlabel("epoch")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
