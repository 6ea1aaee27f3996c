"""How long imports and commands take to start, as ratios to a bare `python -c pass` of the same round.

Each round runs every program once, one after the other. A first round, which compiles byte code and kernels, does not
count. numpy with pyarrow, and torch with numba, are what a look-up and a linked text cannot do without.

python benchmarks/start.py --kb KB --rounds 5
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _harness import parser_of, write_json

from deeped_ray.running.console import table

ROOT = Path(__file__).parent.parent
BASELINE = "python -c pass"
TEXT = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."


def programs(kb: str) -> dict[str, list[str]]:
    """What to run, as arguments of Python."""
    deeped = ["-m", "deeped_ray.cli"]
    return {
        BASELINE: ["-c", "pass"],
        "import deeped_ray": ["-c", "import deeped_ray"],
        "import numpy, pyarrow": ["-c", "import numpy, pyarrow.fs"],
        "deeped --help": [*deeped, "--help"],
        "deeped mention": [*deeped, "mention", "--kb", kb, "Montreal"],
        "import torch, numba": ["-c", "import torch, numba"],
        "deeped link": [*deeped, "link", "--kb", kb, TEXT],
    }


def seconds(arguments: list[str]) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", default="kb/mini", help="knowledge base with a linker (default: kb/mini)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds that count (default: 5)")
    args = parser.parse_args()
    asked = programs(args.kb)
    rounds = [{name: seconds(arguments) for name, arguments in asked.items()} for _ in range(args.rounds + 1)][1:]
    times = {name: [each[name] for each in rounds] for name in asked}
    ratios = {name: [each[name] / each[BASELINE] for each in rounds] for name in asked}
    rows = [
        (name, statistics.median(times[name]), statistics.median(found), f"{min(found):.1f}-{max(found):.1f}")
        for name, found in ratios.items()
    ]
    print(f"time to start, {args.rounds} rounds")
    print(table(["program", "seconds", "ratio", "from-to"], rows))
    write_json(args, claim="time to start", baseline_name=BASELINE, seconds=times, ratios=ratios)


if __name__ == "__main__":
    main()
