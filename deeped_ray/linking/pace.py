"""How linking shares the machine: its threads, and where it lets others go first."""

import os
from typing import Protocol, runtime_checkable


@runtime_checkable
class Pause(Protocol):
    """Linking calls this between pieces of work of some milliseconds.

    A server lets other requests go first there, and ends a request whose time is up by an exception.
    """

    def __call__(self, expected_s: float = 0.0) -> None:
        """`expected_s` is what the work that comes next will take. It may be refused for that."""


def no_pause(expected_s: float = 0.0) -> None:
    """Nobody waits, and nothing is too much."""


def num_threads() -> int:
    """The processors that this process may use. Ray sets OMP_NUM_THREADS for a task or replica."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else len(os.sched_getaffinity(0))
