"""What the stages count, for Prometheus: `record("storage_retries", action="fetch")`.

Counted where it happens, by modules that know nothing of Ray. It goes nowhere until `send_to` says where: `running.tasks`
does, in every process that Ray runs. Ray exports them as `ray_deeped_stage_*`, each with the run and the stage.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from deeped_ray.running import logs
from deeped_ray.storage import events

Kind = Literal["counter", "gauge", "histogram"]


class StageMetric(NamedTuple):
    kind: Kind
    meaning: str
    tags: tuple[str, ...] = ()


METRICS = {
    "done": StageMetric("gauge", "work done, by an earlier run too", ("unit",)),
    "size": StageMetric("gauge", "work there is, where that is known", ("unit",)),
    "tasks": StageMetric(
        "counter",
        "tasks by outcome: finished, failed; retried, those of the finished that had been lost before",
        ("outcome",),
    ),
    "task_seconds": StageMetric("histogram", "time that a finished task took"),
    "worker_bytes": StageMetric("gauge", "the most memory that a worker has held"),
    "storage_retries": StageMetric("counter", "times that storage was asked again after a failure", ("action",)),
    "fetched_bytes": StageMetric("counter", "bytes fetched from storage to a node"),
    "loss": StageMetric("gauge", "mean training loss of a mention", ("model", "seed")),
    "dev_accuracy": StageMetric("gauge", "accuracy in validation, 0 to 1", ("model", "seed")),
    "epoch": StageMetric("gauge", "epoch of the last validation", ("model", "seed")),
}
PREFIX = "deeped_stage_"
# from the mini encyclopedia's tasks to those of a whole file that cannot be cut
SECONDS = [0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200]

Send = Callable[[str, float, dict[str, str]], None]
_send: Send | None = None


def send_to(send: Send) -> None:
    global _send
    _send = send
    events.listen(lambda name, value, tags: record(name, value, **tags))


def record(name: str, value: int | float = 1, **tags: str) -> None:
    """Count, set or observe, as the metric's kind has it; the stage is the process's own unless it is given."""
    if _send is not None:
        _send(name, float(value), {"run": logs.labels().run, "stage": logs.labels().stage, **tags})
