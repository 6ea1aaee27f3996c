"""The Ray that a job runs on: joining it, and the logs and metrics of the processes it runs for us."""

import contextlib
import functools
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator

import ray
from ray._private.ray_logging import stderr_deduplicator, stdout_deduplicator
from ray.util.metrics import Counter, Gauge, Histogram

from deeped_ray.running import logs, metrics
from deeped_ray.running.local_ray import API_SERVER, descendants
from deeped_ray.running.logs import Labels
from deeped_ray.running.metrics import METRICS, PREFIX, SECONDS

logger = logging.getLogger(__name__)
NOWHERE = "http://127.0.0.1:9"
"""The port that discards what it is sent; on most machines nobody listens there."""
# What Ray says about itself in every run and nobody can act on. It stays in Ray's log files.
_NOISE = re.compile(
    r"Failed to query Ray Train Controller|Reporting training result|Checkpoint successfully|Setting up process group"
    r"|Started training worker group|Attempting to start training|Requesting resources|world_rank="
    r"|\[mutex\.cc : \d+\] RAW|class name: 'PreemptionWatcher'"
)


def ensure_ray() -> None:
    """Join the cluster this job was submitted to, or start a local Ray when run as plain `python jobs/...`."""
    if not ray.is_initialized():
        # if several tasks fail alike, `tasks.run` raises the first; Ray would print the others after it
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        if not sys.stderr.isatty():  # or the names of workers come in colour, in a job's log too
            os.environ.setdefault("RAY_COLOR_PREFIX", "0")
        before = descendants(os.getpid())
        try:
            _start_ray()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            logger.warning("Ray has not started within 30 s, as on a very busy machine: starting it once more")
            ray.shutdown()
            for pid in descendants(os.getpid()) - before:  # Ray leaves what it has started
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _start_ray()
        logs.start(logs.labels())  # Ray has put a handler of its own beside ours
    metrics.send_to(_send)
    for lines in (stdout_deduplicator, stderr_deduplicator):
        lines.skip_re = _NOISE
    if logs.is_json():
        _log_as_json()


def _start_ray() -> None:
    with _no_dashboard():
        ray.init(
            # without an address Ray would also join any cluster it finds on this host
            address=os.environ.get("RAY_ADDRESS") or "local",
            include_dashboard=False,
            logging_level=logging.WARNING,
            # Ray would put a prefix before the lines of workers, and they would not be JSON any more
            logging_config=ray.LoggingConfig(encoding="JSON", log_level="WARNING") if logs.is_json() else None,
        )


@contextlib.contextmanager
def _no_dashboard() -> Iterator[None]:
    """The processes of a Ray that starts meanwhile ask no dashboard.

    A Ray of ours has none. Ray Train would ask that of any other Ray on this host whether its controller still runs, be
    told that there is no such actor, and take the resources of the training away.
    """
    if os.environ.get("RAY_ADDRESS") or API_SERVER in os.environ:
        yield
        return
    os.environ[API_SERVER] = NOWHERE
    try:
        yield
    finally:
        del os.environ[API_SERVER]


@contextlib.contextmanager
def observed(labels: Labels) -> Iterator[None]:
    """In a worker: log and count as the job does that the worker runs for."""
    metrics.send_to(_send)
    with logs.labelled(labels):
        if logs.is_json():
            _log_as_json()
        yield


def _log_as_json() -> None:
    """Ray's own lines too. Lines that workers have in common come one by one: Ray's summary of them is not JSON."""
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
