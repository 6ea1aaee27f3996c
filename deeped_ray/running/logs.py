"""Log lines of a job and of its tasks: text for people, or JSON for machines.

As JSON a line is one object: time (UTC), level, logger, message, run, stage, shard, host, pid; the numbers of the event,
where it has some; the exception of an error.
"""

import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple, TextIO, cast, get_args

from deeped_ray.types import DeepEdError, redacted

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Labels(NamedTuple):
    """What this process is at work on, and how it says so; a task is handed those of its job."""

    run: str = ""
    stage: str = ""
    shard: str = ""
    format: Format | None = None
    """None: nobody asked for logs, and logging is left as it was found."""


# One for the process rather than a context variable: threads, such as that which renews a lease, speak for it too.
_labels = Labels()


def labels() -> Labels:
    return _labels


def label(**changes: str) -> None:
    """From here on this process is at work on something else."""
    global _labels
    _labels = _labels._replace(**changes)  # type: ignore[arg-type]


def start(given: Labels) -> None:
    """Log as the labels say, from here on."""
    global _labels
    _labels = given
    if given.format == "json":
        if not isinstance(sys.stderr, WholeLines):
            sys.stderr = cast(TextIO, WholeLines(sys.stderr))
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
        logging.captureWarnings(True)
    elif given.format == "text":
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


@contextlib.contextmanager
def labelled(given: Labels) -> Iterator[None]:
    """A task, in a process that may have had others: only JSON is set up, once; text goes the way of Ray's workers."""
    global _labels
    before, _labels = _labels, given
    if given.format == "json" and before.format != "json":
        start(given)
    try:
        yield
    finally:
        _labels = before._replace(format=given.format)


def format_of(option: Format | None) -> Format:
    """What the command line says, or else the environment: cluster files set it once for all jobs."""
    found = option or os.environ.get("DEEPED_LOG") or "text"
    for known in FORMATS:
        if found == known:
            return known
    raise DeepEdError(f"DEEPED_LOG is {found!r}, expected {' or '.join(FORMATS)}.")


def is_json() -> bool:
    return _labels.format == "json"


class WholeLines:
    """A stream that keeps the lines of threads apart.

    Ray prints what workers say from a thread of its own, the line first and then its end. Without this, a line of another
    thread may come between the two.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._pending = stream, threading.local()

    def write(self, text: str) -> int:
        lines = getattr(self._pending, "text", "") + text
        whole, end, self._pending.text = lines.rpartition("\n")
        if end:
            self._stream.write(whole + end)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class JsonFormatter(logging.Formatter):
    """`logger.info("...", extra={"fields": {"done": 3}})` adds fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "run": _labels.run,
            "stage": _labels.stage,
            "shard": _labels.shard,
            "host": socket.gethostname(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
