"""Forms batches across requests and runs them in one thread.

A batch is whatever waits when the thread becomes free. So a lone request is never held back, and batches grow with the
load. Ray's `@serve.batch` waits a fixed time, refuses a request that is larger than a batch, and sends what does not fit
to the end of the queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class OverloadedError(Exception):
    """More work waits than this replica can do in time."""


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    size: int
    answer: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Item, Result]):
    """Lives on one event loop. `run` is called in a thread, with one batch at a time."""

    def __init__(
        self, run: Callable[[Sequence[Item]], Sequence[Result | Exception]], *, max_batch: int, max_waiting: int
    ) -> None:
        """`run` returns a result for every item, or the exception that only this item's caller gets."""
        self._run, self._max_batch, self._max_waiting = run, max_batch, max_waiting
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._worker: asyncio.Task[None] | None = None
        self.waiting = 0

    async def submit(self, item: Item, *, size: int) -> Result:
        """Wait for the result of an item. An item that is larger than a batch makes a batch of its own."""
        if self._queue and self.waiting + size > self._max_waiting:
            raise OverloadedError
        waiting: _Waiting[Item, Result] = _Waiting(item, size)
        self._queue.append(waiting)
        self.waiting += size
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await waiting.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := self._next_batch():
            results = await loop.run_in_executor(self._thread, self._results, [waiting.item for waiting in batch])
            for waiting, result in zip(batch, results, strict=True):
                if waiting.answer.done():  # the client has gone
                    continue
                if isinstance(result, Exception):
                    waiting.answer.set_exception(result)
                else:
                    waiting.answer.set_result(result)

    def _next_batch(self) -> list[_Waiting[Item, Result]]:
        batch: list[_Waiting[Item, Result]] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= self._max_batch):
            waiting = self._queue.popleft()
            self.waiting -= waiting.size
            if not waiting.answer.done():
                batch.append(waiting)
                size += waiting.size
        return batch

    def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """In the thread. If a batch breaks, each item runs alone, so only the item that broke it fails."""
        try:
            return self._run(items)
        except Exception as error:
            return [error] if len(items) == 1 else [result for item in items for result in self._results([item])]
