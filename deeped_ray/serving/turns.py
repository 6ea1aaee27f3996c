"""Long work takes turns with short work, so that nobody waits behind a long text.

A replica computes one thing at a time. Short requests run in batches. A long request runs in a thread of its own, which
gives its turn away every few milliseconds and waits for the next. If both lanes wait, they alternate.
"""

import asyncio
import faulthandler
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from deeped_ray.types import DeepEdError

Lane = Literal["short", "long"]
SLICE_S = 0.02
WATCH_S = 10.0
MOST = 1.5
"""Times the budget that a request may really take: the expectation is not always right."""


class TooLargeError(DeepEdError):
    """A request that asks for more work than one request may."""


class DeadlineError(Exception):
    """The request could not be answered in time."""


class GoneError(Exception):
    """The client has gone, so nobody wants the answer."""


class Turns:
    """A lock with two lanes. Within a lane, who comes first goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Lane, deque[object]] = {"short": deque(), "long": deque()}
        self._is_taken, self._last_lane, self._since = False, "long", 0.0

    @contextmanager
    def turn(self, lane: Lane, *, deadline: float = math.inf) -> Iterator[None]:
        """Raises DeadlineError if the turn does not come before the deadline, by `time.monotonic`."""
        self.take(lane, deadline=deadline)
        try:
            yield
        finally:
            self.give()

    def take(self, lane: Lane, *, deadline: float = math.inf) -> None:
        ticket = object()
        with self._changed:
            self._waiting[lane].append(ticket)
            timeout_s = None if deadline == math.inf else max(deadline - time.monotonic(), 0)
            is_ours = self._changed.wait_for(lambda: not self._is_taken and self._next() is ticket, timeout_s)
            self._waiting[lane].remove(ticket)
            if not is_ours:
                self._changed.notify_all()  # others may have waited for this one
                raise DeadlineError
            self._is_taken, self._last_lane, self._since = True, lane, time.monotonic()

    def give(self) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()

    def _next(self) -> object:
        lanes: tuple[Lane, Lane] = ("long", "short") if self._last_lane == "short" else ("short", "long")
        return next(self._waiting[lane][0] for lane in lanes if self._waiting[lane])

    def renew(self) -> None:
        """Nobody else wants the turn, so who has it goes on. For the watch, this is a turn of its own."""
        self._since = time.monotonic()

    def age_s(self) -> float:
        """How long the present turn has lasted."""
        return time.monotonic() - self._since if self._is_taken else 0.0

    def is_wanted(self) -> bool:
        return any(self._waiting.values())


class Slices:
    """The pause of a long piece of work, which holds a turn of the long lane."""

    def __init__(self, turns: Turns, *, deadline: float, is_gone: Callable[[], bool], budget_s: float) -> None:
        """`deadline` by `time.monotonic`; `budget_s` is the work that one request may ask for. For the thread that makes it."""
        self._turns, self._deadline, self._is_gone = turns, deadline, is_gone
        self._budget_s, self._expected_s = budget_s, 0.0
        self._began, self._end = time.thread_time(), time.monotonic() + SLICE_S

    def __call__(self, expected_s: float = 0.0) -> None:
        self._expected_s += expected_s
        if self._expected_s > self._budget_s:
            raise TooLargeError(
                f"This request would take {self._expected_s:.1f} s of work; the limit is {self._budget_s:g} s."
                " Send it in several requests."
            )
        if (now := time.monotonic()) < self._end:
            return
        if now > self._deadline:
            raise DeadlineError
        if self._is_gone():
            raise GoneError
        if (used_s := time.thread_time() - self._began) > MOST * self._budget_s:
            raise TooLargeError(
                f"This request took {used_s:.1f} s of work, and has not ended; the limit is {self._budget_s:g} s."
                " Send it in several requests."
            )
        if self._turns.is_wanted():
            self._turns.give()
            self._turns.take("long")
        else:
            self._turns.renew()
        self._end = time.monotonic() + SLICE_S


async def watch(turns: Turns, *, limit_s: float = WATCH_S) -> None:
    """End this process if its event loop or one turn hangs for longer than the limit. Ray Serve starts another.

    The clock runs outside the interpreter, in C, so that it also sees code that never lets another thread run. Before the
    end it writes what every thread was doing to the log. On a busy machine the event loop gets its time late without
    hanging, so the limit grows with how late it has been.
    """
    late_s = 0.0
    try:
        while True:
            faulthandler.dump_traceback_later(max(limit_s + 10 * late_s - turns.age_s(), 0.01), exit=True)
            due = time.monotonic() + limit_s / 10
            await asyncio.sleep(limit_s / 10)
            late_s = max(time.monotonic() - due, 0.8 * late_s)
    finally:
        faulthandler.cancel_dump_traceback_later()
