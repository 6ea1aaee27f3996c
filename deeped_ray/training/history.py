"""The history of a training run: a CSV of validations, a picture, and means over seeds."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeped_ray.evaluation.metrics import mean_and_interval

History = Sequence[dict[str, Any]]
COLUMNS = {
    "model": str,
    "seed": int,
    "epoch": int,
    "learning_rate": float,
    "loss": float,
    "dev_accuracy": float,
    "seconds": float,
}


def write_history(history: History, path: Path) -> None:
    with open(path, "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(COLUMNS))
        writer.writeheader()
        writer.writerows(history)


def read_history(path: Path) -> list[dict[str, Any]]:
    with open(path, newline="") as handle:
        return [{name: COLUMNS[name](cell) for name, cell in row.items()} for row in csv.DictReader(handle)]


def best_by_seed(history: History, kind: str) -> dict[int, float]:
    """Best validation accuracy of every seed."""
    best: dict[int, float] = {}
    for row in history:
        if row["model"] == kind:
            best[row["seed"]] = max(row["dev_accuracy"], best.get(row["seed"], 0.0))
    return best


def best_seed(history: History, kind: str) -> int:
    """The first of the seeds with the highest validation accuracy."""
    best = best_by_seed(history, kind)
    return max(best, key=lambda seed: (best[seed], -seed))


def summarize(history: History) -> dict[str, Any]:
    """For every model the best validation accuracy (the mean over seeds, and its interval) and what it took."""
    kinds = dict.fromkeys(row["model"] for row in history)
    summary: dict[str, Any] = {"dev_accuracy": {}, "epochs": {}}
    for kind in kinds:
        rows = [row for row in history if row["model"] == kind]
        by_seed = best_by_seed(history, kind)
        mean, interval = mean_and_interval(list(by_seed.values()))
        summary["dev_accuracy"][kind] = round(mean, 4)
        summary["epochs"][kind] = max(row["epoch"] for row in rows)
        if len(by_seed) > 1:
            summary.setdefault("interval", {})[kind] = round(interval, 4)
            summary.setdefault("by_seed", {})[kind] = {seed: round(value, 4) for seed, value in by_seed.items()}
    return summary


def write_curves(history: History, path: Path) -> None:
    """Loss and validation accuracy against epochs, a line for every seed."""
    # here and not above: it takes a second to import, which only training should pay
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, column in zip(figure.subplots(1, 2), ("loss", "dev_accuracy"), strict=True):
        for color, kind in zip(
            ("tab:blue", "tab:orange"), dict.fromkeys(row["model"] for row in history), strict=False
        ):
            for number, seed in enumerate(best_by_seed(history, kind)):
                rows = [row for row in history if row["model"] == kind and row["seed"] == seed]
                label = None if number else kind
                epochs, values = [row["epoch"] for row in rows], [row[column] for row in rows]
                axes.plot(epochs, values, color=color, marker=".", alpha=0.7, label=label)
        axes.set_xlabel("epoch")
        axes.set_title({"loss": "training loss per mention", "dev_accuracy": "validation accuracy"}[column])
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
