"""Spread independent pieces of work over a Ray cluster, with a bounded number in flight."""

import logging
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import ray

from deeped_ray.progress import Progress
from deeped_ray.types import DeepEdError

Item = TypeVar("Item")
Result = TypeVar("Result")
CRASHES = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)


def ensure_ray() -> None:
    """Join the cluster this job was submitted to, or start a local Ray when run as plain `python jobs/...`."""
    if not ray.is_initialized():
        # without an address Ray would also join any cluster it finds on this host
        ray.init(
            address=os.environ.get("RAY_ADDRESS") or "local",
            include_dashboard=False,
            logging_level=logging.WARNING,
        )


def peak_memory_gib() -> float:
    """The most memory that this process has held so far, pages it shares with others included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB


def spread(
    function: Callable[..., Result],
    items: Iterable[Item],
    *shared: Any,
    num_gpus: float = 0.0,
    after_crash: Callable[[Item, str], Item] | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, function(item, *shared)) as results arrive, in any order.

    `shared` values go to the object store once, and numpy arrays among them are read there without a copy. At most two
    items per CPU are under way, so that neither the driver nor the store fills up. A task lost with its worker or node is
    run again, up to five times; or `after_crash` is told the item and what happened, and says what to run instead. An
    exception of `function` is raised here.
    """
    ensure_ray()
    task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=0 if after_crash else 5)(function)
    references = [ray.put(value) for value in shared]
    running: dict[Any, Item] = {}

    def next_result() -> tuple[Item, Result]:
        while True:
            ready, _ = ray.wait(list(running), num_returns=1)
            item = running.pop(ready[0])
            try:
                return item, ray.get(ready[0])
            except CRASHES as error:
                if after_crash is None:
                    raise
                item = after_crash(item, _first_line(error))
                running[task.remote(item, *references)] = item

    try:
        for item in items:
            while len(running) >= _max_in_flight():
                yield next_result()
            running[task.remote(item, *references)] = item
        while running:
            yield next_result()
    except ray.exceptions.RayTaskError as error:
        # a user's error stays one line; anything else keeps the worker's traceback
        raise (error.cause if isinstance(error.cause, DeepEdError) else error.as_instanceof_cause()) from None


def _max_in_flight() -> int:
    """Asked for every time: a cluster grows when it sees that tasks wait."""
    return 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def run_tasks(stage: str, unit: str, function: Callable[..., float], items: Sequence[Item], *shared: Any) -> float:
    """Spread tasks that return `peak_memory_gib()`, show their progress, and return the largest of these."""
    progress = Progress(stage, unit, len(items))
    peak = 0.0
    for _, memory in spread(function, items, *shared):
        peak = max(peak, memory)
        progress.advance(note=f"workers up to {peak:.2f} GiB")
    return peak
