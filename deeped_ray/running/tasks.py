"""Spread independent pieces of work over a Ray cluster, with a bounded number in flight; logs and metrics of its tasks."""

import contextlib
import functools
import logging
import os
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import ray
from ray._private.ray_logging import stderr_deduplicator
from ray.util.metrics import Counter, Gauge, Histogram

from deeped_ray.running import logs, metrics
from deeped_ray.running.logs import Labels
from deeped_ray.running.metrics import METRICS, PREFIX, SECONDS
from deeped_ray.running.progress import Progress
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Item = TypeVar("Item")
Result = TypeVar("Result")
logger = logging.getLogger(__name__)
CRASHES = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)


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
            # so that Ray puts nothing before the lines of workers, which would be no JSON then
            logging_config=ray.LoggingConfig(encoding="JSON", log_level="WARNING") if logs.is_json() else None,
        )
        logs.start(logs.labels())  # for Ray has put a handler of its own beside ours
    metrics.send_to(_send)
    if logs.is_json():
        _log_as_json()


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
    labels = logs.labels()
    task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=0 if after_crash else 5)(_run_task)
    task = task.options(name=getattr(function, "__name__", "task"))
    references = [ray.put(value) for value in shared]
    running: dict[Any, Item] = {}
    peak = 0.0

    def start(item: Item) -> None:
        its_labels = labels._replace(shard=label_of(item))
        running[task.remote(function, its_labels, item, *references)] = item

    def next_result() -> tuple[Item, Result]:
        nonlocal peak
        while True:
            ready, _ = ray.wait(list(running), num_returns=1)
            item = running.pop(ready[0])
            try:
                done: _Done[Result] = _get(ready[0], item, labels.stage)
            except CRASHES as error:
                if after_crash is None:
                    raise
                start(after_crash(item, _first_line(error)))
                continue
            peak = max(peak, done.memory_gib)
            _count(done, peak, labels.stage)
            return item, done.result

    try:
        for item in items:
            while len(running) >= _max_in_flight():
                yield next_result()
            start(item)
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


# -- tasks


@dataclass(frozen=True)
class _Done(Generic[Result]):
    """A task's result, and what there is to count of it: by the driver, since workers may go before they are asked."""

    result: Result
    seconds: float
    memory_gib: float
    is_retry: bool


def _run_task(function: Callable[..., Result], labels: Labels, item: Item, *shared: Any) -> _Done[Result]:
    with observed(labels):
        start = time.monotonic()
        result = function(item, *shared)
        return _Done(result, time.monotonic() - start, peak_memory_gib(), _is_retry())


def _is_retry() -> bool:
    """Whether the task that runs was lost before; Ray has no public way to ask."""
    core_worker: Any = ray._private.worker.global_worker.core_worker  # type: ignore[attr-defined]
    return bool(core_worker.get_current_task_attempt_number() > 0)


def _get(reference: Any, item: object, stage: str) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        metrics.record("tasks", outcome="failed", stage=stage)
        shard = label_of(item)
        logger.error("a task failed at %s", shard, extra={"fields": {"stage": stage, "shard": shard}})
        raise


def _count(done: _Done[Any], peak_gib: float, stage: str) -> None:
    metrics.record("tasks", outcome="finished", stage=stage)
    if done.is_retry:
        metrics.record("tasks", outcome="retried", stage=stage)
    metrics.record("task_seconds", done.seconds, stage=stage)
    metrics.record("worker_bytes", peak_gib * 2**30, stage=stage)


def label_of(item: object) -> str:
    """What logs call a piece of work: a file by its name, a range by its ends."""
    if type(item) is tuple:
        return " ".join(filter(None, map(label_of, item)))
    if isinstance(item, Location | Path):
        return item.name
    return str(item) if isinstance(item, int | str) else getattr(item, "label", "")


# -- logs and metrics of a process that Ray runs


@contextlib.contextmanager
def observed(labels: Labels) -> Iterator[None]:
    """Log and count as the job does that this process works for."""
    metrics.send_to(_send)
    with logs.labelled(labels):
        if logs.is_json():
            _log_as_json()
        yield


def _log_as_json() -> None:
    """Ray's own lines too; those that workers have in common come one by one, since Ray's summary would be no JSON."""
    logging.getLogger("ray").handlers[:] = logging.getLogger().handlers
    stderr_deduplicator.allow_re = re.compile(r"^\{")


@functools.cache
def _metric(name: str) -> Counter | Gauge | Histogram:
    kind, meaning, tags = METRICS[name]
    tag_keys = ("run", "stage", *tags)
    if kind == "histogram":
        return Histogram(PREFIX + name, meaning, boundaries=SECONDS, tag_keys=tag_keys)
    return (Counter if kind == "counter" else Gauge)(PREFIX + name, meaning, tag_keys=tag_keys)


def _send(name: str, value: float, tags: dict[str, str]) -> None:
    if not ray.is_initialized():
        return
    metric = _metric(name)
    if isinstance(metric, Gauge):
        metric.set(value, tags)
    elif isinstance(metric, Histogram):
        metric.observe(value, tags)
    elif value > 0:
        metric.inc(value, tags)
