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


def ensure_ray() -> None:
    """Join the cluster this job was submitted to, or start a local Ray when run as plain `python jobs/...`."""
    if not ray.is_initialized():
        # of several tasks that fail alike, `spread` raises the first; Ray would print the others after it
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
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
    function: Callable[..., Result], items: Iterable[Item], *shared: Any, num_gpus: float = 0.0
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, function(item, *shared)) as results arrive, in any order.

    `shared` values go to the object store once, and numpy arrays among them are read there without a copy. At most two
    items per CPU are under way, so that neither the driver nor the store fills up. A task lost with its worker or node is
    run again; an exception of `function` is raised here.
    """
    ensure_ray()
    task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=5)(function)
    references = [ray.put(value) for value in shared]
    max_in_flight = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, Item] = {}
    try:
        for item in items:
            if len(running) >= max_in_flight:
                yield _next_result(running)
            running[task.remote(item, *references)] = item
        while running:
            yield _next_result(running)
    except ray.exceptions.RayTaskError as error:
        # a user's error stays one line; anything else keeps the worker's traceback
        raise (error.cause if isinstance(error.cause, DeepEdError) else error.as_instanceof_cause()) from None


def _next_result(running: dict[Any, Item]) -> tuple[Item, Any]:
    ready, _ = ray.wait(list(running), num_returns=1)
    item = running.pop(ready[0])
    return item, ray.get(ready[0])


def run_tasks(stage: str, unit: str, function: Callable[..., float], items: Sequence[Item], *shared: Any) -> float:
    """Spread tasks that return `peak_memory_gib()`, show their progress, and return the largest of these."""
    progress = Progress(stage, unit, len(items))
    peak = 0.0
    for _, memory in spread(function, items, *shared):
        peak = max(peak, memory)
        progress.advance(note=f"workers up to {peak:.2f} GiB")
    return peak
