"""What follows from the rows of `scale.py`: cost per unit, whether it is flat, and the coefficients of `deeped plan`."""

import os
import statistics
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import scipy.optimize

from deeped_ray.coefficients import Fit
from deeped_ray.evaluation.tables import table

Row = dict[str, Any]
FLAT = 0.20
CLAIM = "cost per unit does not depend on size or number of workers"
SECONDS = ("core_s", "driver_s", "worker_s", "ray_s", "tasks_s")
UNITS = {
    "ingest": ("MB of dump", 1),
    "embedding": ("1,000 entities", 1000),
    "index": ("1,000 entities", 1000),
    "linking": ("1,000 documents", 1000),
    "training": ("1,000 mentions", 1000),
}
# which sizes each quantity of a stage is taken to grow with
FITTED: dict[str, dict[str, list[str]]] = {
    "start": {"core_s": ["workers"]},
    "start-linking": {"core_s": ["workers"]},
    "ingest": {
        "tasks_s": ["words", "titles"],
        "driver_s": ["words", "names"],
        "driver_gib": ["names"],
        "worker_gib": ["vocabulary", "partition_bytes"],
        "pages_mb": ["words", "titles"],
        "corpus_mb": ["words", "names"],
        "names_mb": ["names", "vocabulary"],
        "work_mb": ["words", "names"],
    },
    "words": {"driver_s": ["file_words"]},
    "embedding": {
        "tasks_s": ["words", "entities"],
        "driver_s": ["vocabulary", "entities"],
        "driver_gib": ["vocabulary", "entities"],
        "worker_gib": ["vocabulary", "entities"],
        "part_mb": ["entities"],
    },
    "index": {"core_s": ["entities", "names"], "driver_gib": ["entities", "names"], "part_mb": ["entities", "names"]},
    "training": {"core_s": ["mentions"], "worker_gib": ["mentions"], "part_mb": ["mentions"]},
    "linking": {"core_s": ["mentions"], "worker_gib": ["mentions"]},
    "reads": {"core_s": ["reads"]},
    "markup": {"core_s": ["markup_bytes"]},
}
THROUGH_ZERO = ("words", "reads", "markup")
"""Stages that were measured at one size: all of it is taken to grow."""
# benchmarks/serve.py, docs/results.md: 365 documents of 19 mentions a second on 2 cores, with the clients on these too
SERVING = {"core_s": Fit(0.0, {"mentions": 2 / 365 / 19}, 0.3, {"mentions": 100.0})._asdict()}


def at_one_speed(rows: Sequence[Row]) -> list[Row]:
    """Seconds as they would have been had the machine been as fast all the time as it was in the median."""
    usual = statistics.median(row["probe_s"] for row in rows)
    slowness = {id(row): row["probe_s"] / usual for row in rows}
    return [
        {name: value / slowness[id(row)] if name in SECONDS else value for name, value in row.items()} for row in rows
    ]


def fit(rows: Sequence[Row], quantity: str, sizes: Sequence[str], *, has_fixed: bool = True) -> Fit:
    """Least squares of relative errors, nothing below zero: more work never costs less."""
    values = np.array([row[quantity] for row in rows], dtype=float)
    columns = [[row[size] for row in rows] for size in sizes] + ([np.ones(len(rows))] if has_fixed else [])
    features = np.array(columns, dtype=float).T
    scales = features.max(axis=0)
    weights, _ = scipy.optimize.nnls(features / scales / values[:, None], np.ones(len(rows)))
    spread_of_fit = float(np.abs(features / scales @ weights / values - 1).max())
    units = (weights / scales).tolist()
    largest = {size: float(max(row[size] for row in rows)) for size in sizes}
    return Fit(units[-1] if has_fixed else 0.0, dict(zip(sizes, units, strict=False)), spread_of_fit, largest)


def report(rows: Sequence[Row]) -> str:
    """Cost per unit at every size, with and without what a stage costs before it has done anything."""
    lines, verdicts = [], []
    rows = at_one_speed(rows)
    for stage, (unit, per) in UNITS.items():
        found = [row for row in rows if row["stage"] == stage and not row.get("mixed")]
        if len({row["size"] for row in found}) < 2:
            continue
        line = fit(found, "core_s", ["size"])
        costs = [
            (
                row["workers"],
                row["size"],
                row["core_s"] / row["size"] * per,
                (row["core_s"] - line.fixed) / row["size"] * per,
            )
            for row in found
        ]
        lines += [(stage, workers, size / per, unit, raw, net) for workers, size, raw, net in costs]
        verdicts.append((stage, line.fixed, line.units["size"] * per, *_verdict(costs)))
    return "\n\n".join(
        [
            CLAIM,
            table(["stage", "workers", "size", "of", "core-s per unit", "without the fixed part"], lines),
            table(
                ["stage", "fixed core-s", "core-s per unit", "largest/smallest", "2 workers/1", "flat within 20%"],
                verdicts,
            ),
        ]
    )


def _verdict(costs: Sequence[tuple[int, float, float, float]]) -> tuple[str, str, str]:
    """Ratios of costs per unit, the fixed part left out: by size over all workers, and by workers over all sizes."""
    by_size = [
        statistics.mean(net for _, size, _, net in costs if size == extreme)
        for extreme in (max(size for _, size, _, _ in costs), min(size for _, size, _, _ in costs))
    ]
    by_workers = {
        count: statistics.mean(net for workers, _, _, net in costs if workers == count) for count, *_ in costs
    }
    ratios = [by_size[0] / by_size[1], *([by_workers[2] / by_workers[1]] if len(by_workers) > 1 else [])]
    is_flat = all(1 / (1 + FLAT) <= ratio <= 1 + FLAT for ratio in ratios)
    return f"{ratios[0]:.2f}", f"{ratios[1]:.2f}" if len(ratios) > 1 else "-", "yes" if is_flat else "no"


def coefficients(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """What `deeped plan` reads."""
    usual = statistics.median(row["probe_s"] for row in rows)
    rows = at_one_speed(rows)
    corpora = [row for row in rows if row["stage"] == "ingest" and not row["mixed"]]
    words, vocabulary = (np.log([row[name] for row in corpora]) for name in ("words", "vocabulary"))
    largest = max(corpora, key=lambda row: row["words"])
    stages = {
        stage: {
            quantity: fit(
                _rows_of(rows, stage, quantity), quantity, sizes, has_fixed=stage not in THROUGH_ZERO
            )._asdict()
            for quantity, sizes in quantities.items()
        }
        for stage, quantities in FITTED.items()
    }
    return {
        "made": {
            "by": command,
            "on": date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
            "probe_s": usual,
            "dimension": 300,
        },
        "bytes_per_word": largest["dump_mb"] * 1e6 / largest["words"],
        "vocabulary": {
            "words": largest["words"],
            "size": largest["vocabulary"],
            "exponent": float(np.polyfit(words, vocabulary, 1)[0]),
        },
        "stages": {**stages, "serving": SERVING},
    }


def _rows_of(rows: Sequence[Row], stage: str, quantity: str) -> list[Row]:
    """A reducer of everything tells of memory too. The driver's is clean in the first pass alone: it gives nothing back."""
    found = [row for row in rows if row["stage"] == stage]
    if (stage, quantity) == ("ingest", "worker_gib"):
        found += [row for row in rows if row["stage"] == "reducer"]
    return [row for row in found if quantity != "driver_gib" or row["workers"] <= 1 or stage == "training"]
