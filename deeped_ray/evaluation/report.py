"""Evaluates linkers on annotated documents and shows the outcome as a table or as JSON."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.metrics import Result, score
from deeped_ray.linking.linker import Linker, LinkerKind
from deeped_ray.types import Document


@dataclass(frozen=True)
class Report:
    """One linker on one data set."""

    dataset: str
    model: LinkerKind
    result: Result
    seconds: float

    def to_json(self) -> dict[str, Any]:
        result = self.result
        return {
            "dataset": self.dataset,
            "model": self.model,
            "mentions": result.counts.mentions,
            "accuracy": result.accuracy,
            "precision": result.precision,
            "micro_f1": result.micro_f1,
            "macro_f1": result.macro_f1,
            "gold_recall": result.gold_recall,
            "seconds": self.seconds,
            "mentions_per_s": result.counts.mentions / self.seconds if self.seconds else 0.0,
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What to score."""

    dataset: Annotated[
        tuple[str, ...], "annotated documents: aida:FILE, or mini:train, mini:dev, mini:test; default: mini:test"
    ] = ()
    model: Annotated[Literal["all", "prior", "local", "global"], "which linker to score"] = "all"

    @property
    def datasets(self) -> tuple[str, ...]:
        return self.dataset or ("mini:test",)

    @property
    def models(self) -> tuple[LinkerKind, ...]:
        return ("prior", "local", "global") if self.model == "all" else (self.model,)


def evaluate(kb: KnowledgeBase, config: EvaluationConfig) -> list[Report]:
    """Every model on every data set."""
    datasets = config.datasets
    documents = {dataset: read_dataset(dataset) for dataset in datasets}
    linkers = {model: Linker.open(kb, model) for model in config.models}
    return [
        _evaluate(dataset, documents[dataset], model, linker)
        for dataset in datasets
        for model, linker in linkers.items()
    ]


def _evaluate(dataset: str, documents: Sequence[Document], model: LinkerKind, linker: Linker) -> Report:
    start = time.monotonic()
    predictions = linker.link_batch(documents)
    seconds = time.monotonic() - start
    return Report(dataset, model, score(documents, predictions, linker.inputs.catalogue), seconds)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain aligned columns: text to the left, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(header), *(len(row[i]) for row in cells)) if cells else len(header) for i, header in enumerate(headers)
    ]
    numeric = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(headers)), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def report_table(reports: Sequence[Report]) -> str:
    headers = ["data set", "model", "mentions", "accuracy %", "micro F1 %", "macro F1 %", "gold recall %", "mentions/s"]
    rows = []
    for report in reports:
        result = report.result
        rates = [100 * rate for rate in (result.accuracy, result.micro_f1, result.macro_f1, result.gold_recall)]
        name = report.dataset.rpartition("/")[2]
        rows.append(
            [
                name,
                report.model,
                result.counts.mentions,
                *(f"{rate:.1f}" for rate in rates),
                int(report.to_json()["mentions_per_s"]),
            ]
        )
    return table(headers, rows)
