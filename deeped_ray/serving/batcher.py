"""Forms batches across short requests, and lets long ones take turns with them.

A batch is whatever waits when the thread becomes free. So a lone request is never held back, and batches grow with the
load. The thread takes the next batch itself: it never waits for the event loop while there is work. Ray's `@serve.batch` waits a fixed time, refuses a request that is larger than a batch, and sends what does not fit
to the end of the queue.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.serving.turns import DeadlineError, Lane, Slices, Turns

Item = TypeVar("Item")
Result = TypeVar("Result")
LONG_AT_ONCE = 4
"""Long requests that take turns with each other. Further ones wait for one of these to end."""


class OverloadedError(Exception):
    """More work waits than this replica can do in time."""


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    size: int
    deadline: float
    answer: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, result: Result | Exception) -> None:
        if self.answer.done():  # the client has gone
            return
        if isinstance(result, Exception):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class Batcher(Generic[Item, Result]):
    """Callers are on one event loop. `run` is called in threads, by one at a time."""

    def __init__(
        self,
        run: Callable[[Sequence[Item], Pause], Sequence[Result | Exception]],
        *,
        max_batch: int,
        max_waiting: int,
        deadline_s: float,
        budget_s: float,
    ) -> None:
        """`run` returns a result for every item, or the exception that only this item's caller gets.

        An item that is larger than a batch is long: it runs alone, and `run` often calls the pause that it gets.
        """
        self._run, self.max_batch, self._max_waiting = run, max_batch, max_waiting
        self._deadline_s, self._budget_s = deadline_s, budget_s
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._long_threads = ThreadPoolExecutor(LONG_AT_ONCE, thread_name_prefix="long")
        self._lock, self._is_working = threading.Lock(), False
        self._num_long = 0
        self.turns = Turns()
        self.waiting: dict[Lane, int] = {"short": 0, "long": 0}

    async def submit(self, item: Item, *, size: int) -> Result:
        """Wait for the result of an item. Raises OverloadedError at once, or DeadlineError in time."""
        lane: Lane = "long" if size > self.max_batch else "short"
        # each lane has its own limit: long texts that wait refuse no short one
        has_thread = lane == "long" and self._num_long < LONG_AT_ONCE
        if not has_thread and self.waiting[lane] and self.waiting[lane] + size > self._max_waiting:
            raise OverloadedError
        waiting: _Waiting[Item, Result] = _Waiting(item, size, time.monotonic() + self._deadline_s)
        if lane == "long":
            self.waiting[lane] += size
            return await self._work_long(waiting)
        with self._lock:
            self.waiting[lane] += size
            self._queue.append(waiting)
            was_working, self._is_working = self._is_working, True
        if not was_working:
            self._thread.submit(self._work)
        return await waiting.answer

    # -- long ones

    @property
    def is_long_under_way(self) -> bool:
        return self._num_long > 0

    async def _work_long(self, waiting: _Waiting[Item, Result]) -> Result:
        work = self._long_threads.submit(self._run_long, waiting, asyncio.get_running_loop())
        self._num_long += 1
        try:
            return await waiting.answer
        finally:
            self._num_long -= 1
            if work.cancel():  # the client has gone before it began
                self._begin(waiting)

    def _run_long(self, waiting: _Waiting[Item, Result], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own."""
        loop.call_soon_threadsafe(self._begin, waiting)
        result: Result | Exception
        with self.turns.turn("long"):
            pause = Slices(self.turns, deadline=waiting.deadline, is_gone=waiting.answer.done, budget_s=self._budget_s)
            try:
                (result,) = self._run([waiting.item], pause)
            except Exception as error:
                result = error
        loop.call_soon_threadsafe(waiting.settle, result)

    def _begin(self, waiting: _Waiting[Item, Result]) -> None:
        self.waiting["long"] -= waiting.size

    # -- short ones

    def _work(self) -> None:
        """In the thread of batches, until nothing waits."""
        while batch := self._next_batch():
            with self.turns.turn("short"):
                results = self._results([waiting.item for waiting in batch])
            _tell(batch, results)

    def _next_batch(self) -> list[_Waiting[Item, Result]]:
        with self._lock:
            batch: list[_Waiting[Item, Result]] = []
            size = 0
            while self._queue and (not batch or size + self._queue[0].size <= self.max_batch):
                waiting = self._queue.popleft()
                self.waiting["short"] -= waiting.size
                if time.monotonic() > waiting.deadline:
                    _tell([waiting], [DeadlineError()])
                elif not waiting.answer.done():
                    batch.append(waiting)
                    size += waiting.size
            self._is_working = bool(batch)
            return batch

    def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """If a batch breaks, each item runs alone, so only the item that broke it fails."""
        try:
            return self._run(items, no_pause)
        except Exception as error:
            return [error] if len(items) == 1 else [result for item in items for result in self._results([item])]


def _tell(batch: Sequence[_Waiting[Item, Result]], results: Sequence[Result | Exception]) -> None:
    """Settles a batch on its event loop, which is woken once."""

    def settle() -> None:
        for waiting, result in zip(batch, results, strict=True):
            waiting.settle(result)

    with suppress(RuntimeError):  # the loop has ended, so nobody waits
        batch[0].answer.get_loop().call_soon_threadsafe(settle)
