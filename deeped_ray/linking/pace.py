"""How linking shares the machine: its threads, and where it lets others go first."""

import os
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")


@runtime_checkable
class Pause(Protocol):
    """Linking calls this between pieces of work of some milliseconds.

    A server lets other requests go first there, and ends a request whose time is up by an exception.
    """

    def __call__(self, expected_s: float = 0.0) -> None:
        """`expected_s` is what the work that comes next will take. It may be refused for that."""


def no_pause(expected_s: float = 0.0) -> None:
    """Nobody waits, and nothing is too much."""


def paced(items: Iterable[Item], pause: Pause) -> Iterator[Item]:
    """The items, with a pause after each."""
    for item in items:
        yield item
        pause()


def num_threads() -> int:
    """The processors that this process may use. Ray sets OMP_NUM_THREADS for a task or replica."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else len(os.sched_getaffinity(0))
