"""Claim: a simulated cluster takes as long as a real Ray, within a fifth, on one worker and on two.

python benchmarks/simulate.py

Tasks of unequal length do a fixed piece of work again and again, as `tasks.run` spreads it. What each took on one worker,
and what starting an empty task takes, goes into the simulation; what a run takes, on one worker and on two, is compared.
"""

import time

import ray
from _harness import finish, parser_of

from deeped_ray.planning.meter import probe
from deeped_ray.planning.simulation import Fleet, Pass, simulate
from deeped_ray.running import tasks
from deeped_ray.running.console import table

LENGTHS = [4, 12, 8, 16, 4, 4, 20, 8] * 8
"""Pieces of work of a task."""
EMPTY = 400


def work(count: int) -> float:
    start = time.monotonic()
    for _ in range(count):
        probe()
    return time.monotonic() - start


def real(workers: int) -> tuple[float, list[float], float]:
    """Seconds of a run, of each task, and of the driver for each task."""
    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    try:
        tasks.run("warm up", work, [20] * 2 * workers)
        start = time.monotonic()
        tasks.run("empty", work, [0] * EMPTY)
        dispatch_s = (time.monotonic() - start) / EMPTY
        start = time.monotonic()
        took = tasks.run("work", work, LENGTHS).results
        return time.monotonic() - start, took, dispatch_s
    finally:
        ray.shutdown()


def main() -> None:
    args = parser_of(__doc__).parse_args()
    rows = []
    for workers in (1, 2):
        real_s, took, dispatch_s = real(workers)
        fleet = Fleet(dispatch_s=dispatch_s, straggling=0, slow_share=0, losses_per_node_hour=0)
        simulated_s = simulate([Pass("work", took)], nodes=1, cores_per_node=workers, fleet=fleet).wall_s
        rows.append((workers, real_s, simulated_s, simulated_s / real_s, 1000 * dispatch_s))
    print(table(["workers", "real s", "simulated s", "ratio", "ms a task of the driver"], rows), "\n")
    finish(
        args,
        claim="seconds of a run, simulated over real: one over the other's speed",
        unit="runs",
        ours=[1 / row[2] for row in rows],
        baseline=[1 / row[1] for row in rows],
        baseline_name="a real Ray",
        rows=rows,
    )


if __name__ == "__main__":
    main()
