"""What follows from the rows of `scale.py`: cost per unit, whether it is flat, and the coefficients of `deeped plan`."""

import os
import statistics
from collections.abc import Sequence
from datetime import date
from typing import Any, Literal

import numpy as np
import scipy.optimize

from deeped_ray.planning.coefficients import Fit
from deeped_ray.running.console import table

Row = dict[str, Any]
FLAT = 0.20
CLAIM = "cost per unit does not depend on size or number of workers"
SECONDS = ("core_s", "driver_s", "worker_s", "ray_s")
# what is looked at: the work of the workers, which grows with the size, or all of it where there are none
UNITS = {
    "ingest": ("worker_s", "MB of dump", 1),
    "embedding": ("worker_s", "thousand entities", 1000),
    "linking": ("worker_s", "thousand documents", 1000),
    "training": ("core_s", "thousand mentions", 1000),
}
FIXED = "fixed"
# which sizes each quantity of a stage is taken to grow with; what every worker opens or compiles grows with their number
FITTED: dict[str, dict[str, list[str]]] = {
    "start": {"driver_s": [FIXED], "worker_s": ["workers"]},
    "start-linking": {"driver_s": [FIXED], "worker_s": ["workers"]},
    "ingest": {
        "worker_s": [FIXED, "words", "titles"],
        "driver_s": [FIXED, "targets"],
        "driver_gib": [FIXED, "targets"],
        "worker_gib": [FIXED, "lot", "partition_bytes"],
        "pages_mb": ["words", "titles"],
        "corpus_mb": [FIXED, "words", "names"],
        "names_mb": ["names", "vocabulary"],
        "work_mb": [FIXED, "words", "names"],
    },
    "words": {"driver_s": ["file_words"]},
    "embedding": {
        "worker_s": ["workers", "words"],
        "driver_s": [FIXED, "vocabulary"],
        "part_mb": [FIXED, "entities"],
    },
    "shard": {"worker_gib": [FIXED, "entities"]},
    "index": {
        "core_s": ["entities", "names"],
        "driver_gib": [FIXED, "entities"],
        "part_mb": ["entities", "names"],
    },
    "training": {"core_s": [FIXED, "mentions"], "worker_gib": [FIXED, "mentions"], "part_mb": [FIXED]},
    "linking": {"core_s": ["workers", "mentions"], "worker_gib": [FIXED]},
    "reads": {"core_s": ["reads"]},
    "markup": {"core_s": ["markup_bytes"]},
    "serving": {"core_s": ["mentions"]},
}
# what is paid for each piece, however many there are: no distance from what was measured
PER_PIECE = ("workers", "mentions", "reads", "markup_bytes", "file_words")
# costs that may grow with a size though none was measured to: linking in a larger knowledge base
ALSO = {"linking": ["entities"]}
# quantities of ingest whose lines benchmarks/growth.py compares with larger wikis
EXTENDED = ("worker_s", "pages_mb", "corpus_mb", "names_mb")
LEAST_DRIFT = 0.05
# an earlier run of it, of which no knowledge base is left: docs/scale.md
TWICE: Row = {"partition_bytes": 229e6 / 16, "worker_gib": 0.99}
# benchmarks/index.py and benchmarks/serve.py, docs/scale.md and docs/results.md; one core-second of theirs is taken as one of ours
MEASURED_BEFORE: list[Row] = [
    {"stage": "index", "entities": 270_000, "names": 0, "core_s": 12.0, "driver_gib": 0.41, "part_mb": 24.9},
    {"stage": "index", "entities": 600_000, "names": 0, "core_s": 39.0, "driver_gib": 0.52, "part_mb": 54.7},
    {"stage": "index", "entities": 6_000_000, "names": 0, "core_s": 347.0, "driver_gib": 1.24, "part_mb": 508.0},
    {"stage": "index", "entities": 0, "names": 791_171, "core_s": 20.0, "part_mb": 47.0},
    # 365 documents a second on 2 cores, the clients' work included
    {"stage": "serving", "mentions": 19, "core_s": 2 / 365},
    # jobs/embed_entities.py, docs/results.md: the small slices do not even fill a shard
    {"stage": "shard", "entities": 200_883, "worker_gib": 0.75},
    {"stage": "shard", "entities": 521_825, "worker_gib": 0.82},
]


def at_one_speed(rows: Sequence[Row]) -> list[Row]:
    """Seconds as they would have been had the machine been as fast all the time as it was in the median."""
    usual = statistics.median(row["probe_s"] for row in rows)
    slowness = {id(row): row["probe_s"] / usual for row in rows}
    return [
        {name: value / slowness[id(row)] if name in SECONDS else value for name, value in row.items()} for row in rows
    ]


def fit(rows: Sequence[Row], quantity: str, sizes: Sequence[str]) -> Fit:
    """Least squares of relative errors, nothing below zero: more work never costs less."""
    values = np.array([row[quantity] for row in rows], dtype=float)
    features = np.array([[1.0 if size == FIXED else row[size] for size in sizes] for row in rows], dtype=float)
    scales = features.max(axis=0)
    weights, _ = scipy.optimize.nnls(features / scales / values[:, None], np.ones(len(rows)))
    residual = float(np.abs(features / scales @ weights / values - 1).max())
    units = dict(zip(sizes, (weights / scales).tolist(), strict=True))
    largest = dict(zip(sizes, scales.tolist(), strict=True))
    fixed = units.pop(FIXED, 0.0)
    return Fit(fixed, units, residual, {size: largest[size] for size, unit in units.items() if unit})


def report(rows: Sequence[Row]) -> str:
    """Cost per unit at every size, as it is and without what every worker pays before it has done anything."""
    lines: list[list[object]] = []
    verdicts: list[list[object]] = []
    for stage, (quantity, unit, per) in UNITS.items():
        found = [row for row in at_one_speed(rows) if row["stage"] == stage and not row.get("mixed")]
        if len({row["size"] for row in found}) < 2:  # of one size there is nothing to say but what it cost
            lines += [_line(row, stage, unit, per, per * row[quantity] / row["size"], "-") for row in found]
            continue
        line = fit(found, quantity, ["workers", "size"])
        costs = [(row, per * row[quantity] / row["size"], per * _net(row, quantity, line)) for row in found]
        lines += [_line(row, stage, unit, per, raw, net) for row, raw, net in costs]
        verdicts.append([stage, line.units["workers"], per * line.units["size"], *_ratios(costs)])
    headers = ["stage", "workers", "size", "driver core-s", "core-s per unit", "without the fixed part"]
    ratios = [
        "stage",
        "fixed core-s a worker",
        "core-s per unit",
        "by size",
        "without the fixed part",
        "by workers",
        "flat",
    ]
    return "\n\n".join([CLAIM, table(headers, lines), *([table(ratios, verdicts)] if verdicts else [])])


def _line(row: Row, stage: str, unit: str, per: int, raw: float, net: object) -> list[object]:
    return [stage, row["workers"], f"{row['size'] / per:,.3g} {unit}", row["driver_s"], raw, net]


def _net(row: Row, quantity: str, line: Fit) -> float:
    return float((row[quantity] - line.units["workers"] * row["workers"]) / row["size"])


def _ratios(costs: Sequence[tuple[Row, float, float]]) -> list[str]:
    """Largest size over smallest, with and without the fixed part, most workers over fewest without it; a verdict."""

    def over(key: str, column: Literal[1, 2]) -> float:
        values = {row[key] for row, *_ in costs}
        largest, smallest = (
            statistics.mean(cost[column] for cost in costs if cost[0][key] == end) for end in (max(values), min(values))
        )
        return largest / smallest

    raw, net, by_workers = over("size", 1), over("size", 2), over("workers", 2)
    flat = [1 / (1 + FLAT) <= ratio <= 1 + FLAT for ratio in (net, by_workers, raw)]
    verdict = "no" if not all(flat[:2]) else "yes" if flat[2] else "yes, without the fixed part"
    return [*(f"{ratio:.2f}" for ratio in (raw, net, by_workers)), verdict]


def coefficients(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """What `deeped plan` reads."""
    usual = statistics.median(row["probe_s"] for row in rows)
    rows = [*at_one_speed(rows), *MEASURED_BEFORE]
    corpora = [row for row in rows if row["stage"] == "ingest" and not row["mixed"]]
    words, vocabulary = (np.log([row[name] for row in corpora]) for name in ("words", "vocabulary"))
    largest = max(corpora, key=lambda row: row["words"])
    stages = {
        stage: {
            quantity: _with_reach(fit(_rows_of(rows, stage, quantity), quantity, sizes), rows, stage)._asdict()
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
        "stages": stages,
    }


def extended(known: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Coefficients whose lines of ingest have met larger wikis: they reach as far as these, and their bands cover them.

    The rows are of `growth.py`, start included. The driver's time and the workers' memory are fitted to them anew.
    """
    starts = {who: Fit(**known["stages"]["start"][who]).at({"workers": 1}).value for who in ("driver_s", "worker_s")}
    rows = [_at_speed(row, known["made"]["probe_s"], starts) for row in rows]
    lines = dict(known["stages"]["ingest"])
    for quantity in EXTENDED:
        lines[quantity] = _extended(Fit(**lines[quantity]), rows, quantity)._asdict()
    driver = fit(rows, "driver_s", ["targets"])
    lines["driver_s"] = driver._replace(spread=max(driver.spread, lines["driver_s"]["spread"]))._asdict()
    lines["worker_gib"] = fit([*rows, TWICE], "worker_gib", [FIXED, "partition_bytes"])._asdict()
    return {**known, "stages": {**known["stages"], "ingest": lines}}


def _at_speed(row: Row, probe_s: float, starts: dict[str, float]) -> Row:
    seconds = {who: row[who] * probe_s / row["probe_s"] - start for who, start in starts.items()}
    return {**row, **seconds}


def _extended(line: Fit, rows: Sequence[Row], quantity: str) -> Fit:
    errors = [abs(row[quantity] / line.at(row).value - 1) for row in rows]
    doublings = [max(np.log2(row[size] / most) for size, most in line.largest.items()) for row in rows]
    drifts = [error / beyond for error, beyond in zip(errors, doublings, strict=True) if beyond >= 1]
    return line._replace(
        spread=max(line.spread, *errors),
        largest={size: max(most, *(row[size] for row in rows)) for size, most in line.largest.items()},
        drift=max(LEAST_DRIFT, *drifts) if drifts else line.drift,
    )


def _with_reach(line: Fit, rows: Sequence[Row], stage: str) -> Fit:
    """How far what was measured reaches: beyond it a band widens."""
    kept = {size: most for size, most in line.largest.items() if size not in PER_PIECE}
    also = {size: max(row[size] for row in rows if row["stage"] == stage) for size in ALSO.get(stage, [])}
    return line._replace(largest=kept | also)


def _rows_of(rows: Sequence[Row], stage: str, quantity: str) -> list[Row]:
    """A reducer of everything tells of memory too. The driver's is clean in the first pass alone: it gives nothing back."""
    found = [row for row in rows if row["stage"] == stage and quantity in row]
    if (stage, quantity) == ("ingest", "worker_gib"):
        found += [row for row in rows if row["stage"] == "reducer"]
    is_clean = quantity != "driver_gib" or stage == "index"
    return [row for row in found if is_clean or row["workers"] == 1]
