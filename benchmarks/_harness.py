"""What the benchmarks share: options, timing, a table for people and JSON for programs."""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
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


def finish(
    args: argparse.Namespace, *, claim: str, unit: str, ours: float, baseline: float, baseline_name: str, **figures: Any
) -> None:
    """Print and write the ratio of ours over the baseline, both in `unit` per second and from this run."""
    others = [(name, speed, speed / baseline) for name, speed in figures.get("others", {}).items()]
    rows = [(baseline_name, baseline, 1.0), *others, ("deeped-ray", ours, ours / baseline)]
    print(f"{claim}\n{table(['who', f'{unit}/s', 'ratio'], rows)}\n")
    write_json(
        args,
        claim=claim,
        ratio=ours / baseline,
        unit=f"{unit}/s",
        ours=ours,
        baseline=baseline,
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
