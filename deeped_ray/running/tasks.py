"""One loop for all work that is spread over Ray tasks: `tasks.run("parse", parse_shard, shards, ..., work=folder)`.

It knows what an earlier run has finished and skips it, keeps a bounded number of tasks under way, shows progress and
memory, runs tasks again that were lost with their worker or node, and returns the results in the order of the items.

What is finished is known in one of two ways:

    work      The worker writes a receipt after the task's own files: `work/receipts/parse-000003.json`, which holds
              what the task returned. The next run with the same `work` folder reads it instead of running the task.
    earlier   Where the output itself says whether it is whole, this function returns the earlier result, or None.

Receipts survive a killed driver, and so do its tasks, for some seconds: Ray needs time to notice. Such an orphan does no
harm. What it writes is what the rerun would write. If the rerun ends first and removes the folder, the orphan's receipt
names an attempt whose mark is gone with the folder, and no later run believes it.
"""

import logging
import resource
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import ray

from deeped_ray.running import logs, metrics
from deeped_ray.running.cluster import ensure_ray, observed
from deeped_ray.running.faults import reached
from deeped_ray.running.logs import Labels
from deeped_ray.running.progress import Progress
from deeped_ray.running.reach import require_reach
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Item = TypeVar("Item")
Result = TypeVar("Result")
logger = logging.getLogger(__name__)
CRASHES = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)
MAX_RETRIES = 5
_READERS = 16
"""Receipts read at once: storage that is far away answers slowly, but many at a time."""


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What all tasks of a run returned."""

    results: list[Result]
    """In the order of the items, those of an earlier run included."""
    num_skipped: int
    """Tasks that an earlier run had finished."""
    peak_gib: float
    """The most memory that a worker of this run held, memory it shares with others included."""


def run(
    stage: str,
    function: Callable[..., Result],
    items: Sequence[Item],
    *shared: Any,
    work: Location | None = None,
    earlier: Callable[[Item], Result | None] | None = None,
    unit: str = "tasks",
    size: Callable[[Item], int] = lambda _: 1,
    note: Callable[[Item, Result], str] | None = None,
    after_crash: Callable[[Item, str], Item] | None = None,
    num_gpus: float = 0.0,
    writes: Location | None = None,
) -> Outcome[Result]:
    """function(item, *shared) for every item that is not finished yet.

    `shared` values go to the object store once; numpy arrays among them are read there without a copy. With `work`,
    results must be JSON. `size` is what an item adds to the progress, counted in `unit`, and `note` what the progress
    line says beside it. A task lost with its worker is run again, up to five times; with `after_crash`, that is told
    the item and what happened and returns the item to run instead. An exception of `function` is raised here. Before the
    first task, every node is asked whether it reaches the folder that tasks write to: `writes`, or else `work`.
    """
    receipts = _Receipts(work, stage) if work is not None else None
    found = receipts.read(len(items)) if receipts else _ask(earlier, items) if earlier else {}
    progress = Progress(stage, unit, sum(map(size, items)))
    if found:
        progress.skip(sum(size(items[place]) for place in found))
    todo = [_Task(place, items[place]) for place in range(len(items)) if place not in found]
    if todo and (folder := writes or work):
        ensure_ray()
        require_reach(folder)
    results, peak = dict(found), 0.0
    for task, done in _spread(function, todo, shared, receipts, after_crash, num_gpus) if todo else ():
        results[task.place], peak = done.result, max(peak, done.memory_gib)
        metrics.record("worker_bytes", peak * 2**30, stage=stage)
        told = note(task.item, done.result) if note else ""
        progress.advance(size(task.item), note=", ".join(filter(None, (told, f"workers up to {peak:.2f} GiB"))))
        reached(f"{stage}/driver/{len(results) - len(found)}")
    return Outcome([results[place] for place in range(len(items))], len(found), peak)


# -- what is finished


class _Receipts:
    """What finished tasks returned, one small file each; any node can be handed this."""

    def __init__(self, work: Location, stage: str) -> None:
        self._folder, self._stage, self._attempt = work / "receipts", stage, uuid.uuid4().hex
        self._folder.make_folder()
        self._mark(self._attempt).write_json({})

    def _mark(self, attempt: str) -> Location:
        """There while receipts of this attempt count."""
        return self._folder / f"attempt-{attempt}.json"

    def _file(self, place: int) -> Location:
        return self._folder / f"{self._stage}-{place:06d}.json"

    def write(self, place: int, result: object) -> None:
        self._file(place).write_json({"attempt": self._attempt, "result": result})

    def read(self, count: int) -> dict[int, Any]:
        """Results by place."""
        there = set(self._folder.glob("*"))
        places = [place for place in range(count) if self._file(place) in there]
        with ThreadPoolExecutor(_READERS) as readers:
            found = list(readers.map(lambda place: self._file(place).read_json(), places))
        pairs = zip(places, found, strict=True)
        return {place: receipt["result"] for place, receipt in pairs if self._mark(receipt["attempt"]) in there}


def _ask(earlier: Callable[[Item], Result | None], items: Sequence[Item]) -> dict[int, Result]:
    with ThreadPoolExecutor(_READERS) as readers:
        answers = enumerate(readers.map(earlier, items))
        return {place: result for place, result in answers if result is not None}


# -- tasks on their way


@dataclass(frozen=True, slots=True)
class _Task(Generic[Item]):
    place: int
    item: Item


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    """A task's result, and what the driver counts of it: the worker may be gone before Ray has asked for its counts."""

    result: Result
    seconds: float
    memory_gib: float
    is_retry: bool


def _spread(
    function: Callable[..., Result],
    todo: Sequence[_Task[Item]],
    shared: Sequence[Any],
    receipts: _Receipts | None,
    after_crash: Callable[[Item, str], Item] | None,
    num_gpus: float,
) -> Iterator[tuple[_Task[Item], _Done[Result]]]:
    """Tasks with what they returned, as they finish; at most two for each CPU are under way, so that nothing fills up."""
    ensure_ray()
    labels = logs.labels()
    remote = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=0 if after_crash else MAX_RETRIES)(_run_task)
    remote = remote.options(name=getattr(function, "__name__", "task"))
    references = [ray.put(value) for value in shared]
    running: dict[Any, _Task[Item]] = {}

    def start(task: _Task[Item]) -> None:
        its_labels = labels._replace(shard=label_of(task.item))
        running[remote.remote(function, its_labels, task, receipts, *references)] = task

    def finish_one() -> Iterator[tuple[_Task[Item], _Done[Result]]]:
        ready, _ = ray.wait(list(running), num_returns=1)
        task = running.pop(ready[0])
        try:
            done: _Done[Result] = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            _count_failure(task, labels)
            if after_crash is None or not isinstance(error, CRASHES):
                raise
            start(replace(task, item=after_crash(task.item, str(error).strip().partition("\n")[0])))
            return
        _count(done, labels.stage)
        yield task, done

    try:
        for task in todo:
            while len(running) >= _max_in_flight():
                yield from finish_one()
            start(task)
        while running:
            yield from finish_one()
    except ray.exceptions.RayTaskError as error:
        # a user's error stays one line; anything else keeps the worker's traceback
        raise (error.cause if isinstance(error.cause, DeepEdError) else error.as_instanceof_cause()) from None


def _max_in_flight() -> int:
    """Asked for every time: a cluster grows when it sees that tasks wait."""
    return 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))


def _run_task(
    function: Callable[..., Result], labels: Labels, task: _Task[Item], receipts: _Receipts | None, *shared: Any
) -> _Done[Result]:
    """In a worker."""
    with observed(labels):
        reached(f"{labels.stage}/{task.place}")
        start = time.monotonic()
        result = function(task.item, *shared)
        if receipts:
            receipts.write(task.place, result)
        return _Done(result, time.monotonic() - start, _peak_memory_gib(), _is_retry())


def _peak_memory_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB


def _is_retry() -> bool:
    """Whether the task that runs was lost before; Ray has no public way to ask."""
    core_worker: Any = ray._private.worker.global_worker.core_worker  # type: ignore[attr-defined]
    return bool(core_worker.get_current_task_attempt_number() > 0)


def _count(done: _Done[Any], stage: str) -> None:
    metrics.record("tasks", outcome="finished", stage=stage)
    if done.is_retry:
        metrics.record("tasks", outcome="retried", stage=stage)
    metrics.record("task_seconds", done.seconds, stage=stage)


def _count_failure(task: _Task[Any], labels: Labels) -> None:
    metrics.record("tasks", outcome="failed", stage=labels.stage)
    shard = label_of(task.item)
    logger.error("a task failed at %s", shard, extra={"fields": {"stage": labels.stage, "shard": shard}})


def label_of(item: object) -> str:
    """What logs call a piece of work: a file by its name, a range by its ends."""
    if type(item) is tuple:
        return " ".join(filter(None, map(label_of, item)))
    if isinstance(item, Location | Path):
        return item.name
    return str(item) if isinstance(item, int | str) else getattr(item, "label", "")
