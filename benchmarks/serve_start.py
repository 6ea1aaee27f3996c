"""From `deeped serve` to the first healthy answer: wall clock, CPU seconds of all processes, and when each step began.

The two replicas, Ray and HAProxy count, on a machine whose page cache is warm. A first round, which compiles byte code and
kernels, does not count. Goal: 20 s.

python benchmarks/serve_start.py --kb KB --rounds 3
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from _harness import parser_of, write_json

from deeped_ray.running.console import table
from deeped_ray.running.http import open_url
from deeped_ray.running.local_ray import ROOT, descendants, free_ports

GOAL_S = 20.0
TIMEOUT_S = 300


def start(kb: str) -> dict[str, Any]:
    """Seconds until healthy, CPU seconds until then, and the lines that the command printed with their times."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "deeped_ray.cli", "serve", "--kb", kb, "--port", str(port)]
    began = time.perf_counter()
    steps: list[tuple[float, str]] = []
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as process:

        def read() -> None:
            assert process.stdout is not None
            steps.extend((time.perf_counter() - began, line.strip()) for line in process.stdout if line.strip())

        reader = threading.Thread(target=read)
        reader.start()
        try:
            _wait_until_healthy(port, process)
            seconds, cpu = time.perf_counter() - began, cpu_seconds(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            reader.join()
    return {"seconds": seconds, "cpu_seconds": cpu, "steps": steps}


def _wait_until_healthy(port: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), open_url(f"http://127.0.0.1:{port}/healthz", timeout_s=5.0):
            return
        time.sleep(0.05)
    raise RuntimeError(f"not healthy within {TIMEOUT_S} s")


def cpu_seconds(pid: int) -> float:
    """Of a process, its descendants, and those of them that have ended."""
    ticks = 0
    for each in descendants(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", default="kb/mini", help="knowledge base with a linker (default: kb/mini)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds that count (default: 3)")
    args = parser.parse_args()
    rounds = [start(args.kb) for _ in range(args.rounds + 1)][1:]
    for when, line in rounds[-1]["steps"]:
        print(f"{when:6.1f} s  {line}")
    seconds, cpu = ([each[name] for each in rounds] for name in ("seconds", "cpu_seconds"))
    rows = [
        (name, statistics.median(found), f"{min(found):.1f}-{max(found):.1f}")
        for name, found in (("wall clock", seconds), ("CPU, all processes", cpu))
    ]
    print(f"\n`deeped serve` until healthy, {args.rounds} rounds, {os.cpu_count()} cores, goal {GOAL_S:.0f} s")
    print(table(["seconds", "median", "from-to"], rows))
    write_json(
        args, claim="start to healthy", ratio=statistics.median(seconds) / GOAL_S, seconds=seconds, cpu_seconds=cpu
    )


if __name__ == "__main__":
    main()
