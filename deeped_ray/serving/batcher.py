"""Forms batches across requests by their number of mentions, and runs them in a thread.

A batch is whatever waits when the thread gets free: a lone request is not held back to see whether others come, and
under load batches grow by themselves. Ray's `@serve.batch` waits a fixed time, refuses what is larger than a batch, and
sends what does not fit to the end of the queue.
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
    """More mentions wait than this replica can answer in good time."""


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    size: int
    answer: "asyncio.Future[Result]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Item, Result]):
    """Lives on one event loop; `run` is called in a thread, with one batch at a time."""

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        max_batch: int,
        max_waiting: int,
        on_batch: Callable[[int], None],
    ) -> None:
        """Sizes are in mentions; `on_batch` is told that of every batch."""
        self._run, self._on_batch = run, on_batch
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._worker: asyncio.Task[None] | None = None
        self.waiting = 0

    async def submit(self, item: Item, *, size: int) -> Result:
        """The result for an item, once its batch is done. One that is larger than a batch makes a batch of its own."""
        if self._queue and self.waiting + size > self._max_waiting:
            raise OverloadedError
        waiting: _Waiting[Item, Result] = _Waiting(item, size)
        self._queue.append(waiting)
        self.waiting += size
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await waiting.answer

    async def _work(self) -> None:
        while batch := self._next_batch():
            await self._answer(batch)

    async def _answer(self, batch: list[_Waiting[Item, Result]]) -> None:
        items = [waiting.item for waiting in batch]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, items)
        except Exception as error:
            if len(batch) > 1:  # what breaks a batch breaks only the request that it came with
                for waiting in batch:
                    if not waiting.answer.done():
                        await self._answer([waiting])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for waiting, result in zip(batch, results, strict=True):
            if not waiting.answer.done():  # the client may have gone
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
        if batch:
            self._on_batch(size)
        return batch
