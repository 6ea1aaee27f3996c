"""What the benchmarks share: options, timing, a table for people and JSON for programs."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deeped_ray import __version__
from deeped_ray.running.console import table


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write ratio and raw figures to this file")
    return parser


def parse(doc: str | None, *, needs_kb: bool, dump: Path | None = None) -> argparse.Namespace:
    parser = parser_of(doc)
    if needs_kb:
        parser.add_argument(
            "--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini, made by `make demo`)"
        )
    if dump:
        parser.add_argument(
            "--dump", type=Path, nargs="+", default=[dump], help="MediaWiki export XML (default: the mini encyclopedia)"
        )
    args = parser.parse_args()
    if needs_kb and not (args.kb / "manifest.json").exists():
        parser.error(f"no knowledge base at {args.kb}: run `make demo ONCE=1` first, or give --kb")
    return args


def best_seconds(
    function: Callable[[], object], *, repeats: int = 3, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Shortest of a few runs: on a shared machine the others measure the neighbours."""
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def alternate(
    *functions: Callable[[], object],
    rounds: int = 5,
    least_s: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Seconds a call takes: a list for each function, with a number for each round.

    The functions take turns, so that whatever else the machine does meets them all. In a round, each is called again and
    again for a second at least.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, own in zip(functions, times, strict=True):
            start, calls = clock(), 0
            while not calls or clock() - start < least_s:
                function()
                calls += 1
            own.append((clock() - start) / calls)
    return times


def speeds(units: float, times: Sequence[float]) -> list[float]:
    """Units per second, round by round."""
    return [units / seconds for seconds in times]


def spread(values: Sequence[float]) -> str:
    """`median (least to most)`."""
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def finish(
    args: argparse.Namespace,
    *,
    claim: str,
    unit: str,
    ours: float | Sequence[float],
    baseline: float | Sequence[float],
    baseline_name: str,
    **figures: Any,
) -> None:
    """Print and write the ratio of ours over the baseline, both in `unit` per second and from this run.

    With a number for each round, the ratio is the median of the rounds' ratios, and its spread is printed too.
    """
    ours, baseline = ([each] if isinstance(each, float | int) else [*each] for each in (ours, baseline))
    ratios = [mine / theirs for mine, theirs in zip(ours, baseline, strict=True)]
    pace, their_pace, ratio = (statistics.median(each) for each in (ours, baseline, ratios))
    others = [(name, speed, speed / their_pace, "") for name, speed in figures.get("others", {}).items()]
    spread = f"{min(ratios):,.2f} to {max(ratios):,.2f}" if len(ratios) > 1 else ""
    rows = [(baseline_name, their_pace, 1.0, ""), *others, ("deeped-ray", pace, ratio, spread)]
    print(f"{claim}\n{table(['who', f'{unit}/s', 'ratio', f'in {len(ratios)} rounds'], rows)}\n")
    write_json(
        args,
        claim=claim,
        ratio=ratio,
        ratios=ratios,
        unit=f"{unit}/s",
        ours=pace,
        baseline=their_pace,
        baseline_name=baseline_name,
        **figures,
    )


def write_json(args: argparse.Namespace, **figures: Any) -> None:
    """Write what was measured, and with what, to the file that --json names."""
    if args.json is None:
        return
    versions = {
        "deeped_ray": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({**figures, "cores": os.cpu_count(), "versions": versions}, indent=2) + "\n")
