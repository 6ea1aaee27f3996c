"""Claim: a simulated cluster takes as long as a real Ray, within a fifth, on one worker and on two.

python benchmarks/simulate.py --dump samplewiki-pages-articles-multistream.xml.bz2 --share 0.02

Ingests a slice of a dump on a local Ray of one CPU, and of two. Every task tells its processor time and its process. A pass
takes as long as its busiest worker, or as the driver meanwhile; between passes the driver works alone. That is what a run
takes on cores of its own, and it can be told on a machine that is busy, at the speed that it had (`planning/meter.py`).

Simulated are both runs, from what the tasks took on one worker and from the driver's own time.
"""

import logging
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ray
from _harness import finish, parser_of
from scale import slice_of

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.mini import MINI_DUMP
from deeped_ray.planning.meter import probe
from deeped_ray.planning.simulation import Fleet, Pass, simulate
from deeped_ray.running import tasks
from deeped_ray.running.console import table
from deeped_ray.running.tasks import Outcome


class Took(NamedTuple):
    process: int
    seconds: float
    probe_s: float


@dataclass(frozen=True)
class Timed:
    """A task's function, whose result says what it took."""

    function: Callable[..., dict[str, Any]]

    def __call__(self, item: Any, *shared: Any) -> dict[str, Any]:
        start = time.process_time()
        found = self.function(item, *shared)
        return {**found, "took": Took(os.getpid(), time.process_time() - start, probe())}


class Measured(NamedTuple):
    """One pass of a real run."""

    name: str
    tasks: list[Took]
    alone_s: float
    """Of the driver, before the pass."""
    beside_s: float
    """Of the driver, while tasks run."""

    def seconds(self) -> float:
        by_worker = Counter[int]()
        for took in self.tasks:
            by_worker[took.process] += took.seconds  # type: ignore[assignment]
        return self.alone_s + max([self.beside_s, *by_worker.values()])


def ingest(dump: Path, folder: Path, workers: int) -> list[Measured]:
    """All passes of a real run."""
    ray.init(
        address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    passes, run, ended = list[Measured](), tasks.run, time.process_time()

    def recording(stage: str, function: Any, items: Sequence[Any], *shared: Any, **options: Any) -> Outcome[Any]:
        nonlocal ended
        began = time.process_time()
        alone_s = began - ended
        done = run(stage, Timed(function), items, *shared, **options)
        ended = time.process_time()
        took = [Took(*found.pop("took")) for found in done.results]
        passes.append(Measured(stage, took, alone_s, ended - began))
        return done

    tasks.run = recording
    try:
        config = CorpusConfig(dump=(str(dump),), min_word_count=2, shard_mb=dump.stat().st_size / 16 / 2**20)
        build_corpus(KnowledgeBase(folder, create=True), config)
    finally:
        tasks.run = run
        ray.shutdown()
    return passes


def speed_of(passes: Sequence[Measured]) -> float:
    return statistics.median(took.probe_s for each in passes for took in each.tasks)


def simulated_s(passes: Sequence[Measured], workers: int) -> float:
    count = sum(len(each.tasks) for each in passes)
    dispatch_s = sum(each.beside_s for each in passes) / count
    fleet = Fleet(dispatch_s=dispatch_s, straggling=0, slow_share=0, losses_per_node_hour=0)
    work = [Pass(each.name, [took.seconds for took in each.tasks], before_s=each.alone_s) for each in passes]
    return simulate(work, nodes=1, cores_per_node=workers, fleet=fleet).wall_s


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, default=MINI_DUMP, help="multistream, .xml.bz2 (default: the mini one)")
    parser.add_argument("--share", type=float, default=1.0, help="of the dump (default: all of it)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        dump = slice_of(args.dump, args.share, Path(name) / "slice.xml.bz2")
        runs = {workers: ingest(dump, Path(name) / str(workers), workers) for workers in (1, 2)}
    speed, rows = speed_of(runs[1]), []
    for workers, passes in runs.items():
        real_s = sum(each.seconds() for each in passes) * speed / speed_of(passes)
        guess_s = simulated_s(runs[1], workers)
        driver_ms = 1000 * sum(each.beside_s for each in passes) / sum(len(each.tasks) for each in passes)
        rows.append((workers, sum(len(each.tasks) for each in passes), real_s, guess_s, guess_s / real_s, driver_ms))
    print(table(["workers", "tasks", "real s", "simulated s", "ratio", "ms of the driver a task"], rows), "\n")
    finish(
        args,
        claim="seconds of processor time until a run ends, simulated over real: one over the other's speed",
        unit="runs",
        ours=[1 / row[3] for row in rows],
        baseline=[1 / row[2] for row in rows],
        baseline_name="a real Ray",
        rows=rows,
    )


if __name__ == "__main__":
    main()
