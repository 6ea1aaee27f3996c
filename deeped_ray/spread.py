"""Spread independent pieces of work over a Ray cluster, with a bounded number in flight."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray

Item = TypeVar("Item")
Result = TypeVar("Result")


def ensure_ray() -> None:
    """Join the cluster this job was submitted to, or start a local Ray when run as plain `python jobs/...`."""
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=True, logging_level=logging.WARNING)


def spread(
    function: Callable[..., Result],
    items: Iterable[Item],
    *shared: Any,
    num_cpus: float = 1,
    num_gpus: float = 0,
    max_in_flight: int | None = None,
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, function(item, *shared)) as results arrive, in any order.

    `shared` values go to the object store once, and numpy arrays among them are read there without a copy. At most
    `max_in_flight` items are under way, so that neither the driver nor the store fills up. A task lost with its worker
    or node is run again; an exception of `function` is raised here.
    """
    ensure_ray()
    task = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_retries=5)(function)
    references = [ray.put(value) for value in shared]
    if max_in_flight is None:
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
        raise error.as_instanceof_cause() from None


def _next_result(running: dict[Any, Item]) -> tuple[Item, Any]:
    ready, _ = ray.wait(list(running), num_returns=1)
    item = running.pop(ready[0])
    return item, ray.get(ready[0])
