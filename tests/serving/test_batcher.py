"""Batches across requests, without a server."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from deeped_ray.serving.batcher import Batcher, OverloadedError


class Echo:
    """Answers every item with itself, once it may go on; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_go_on = threading.Event()

    def __call__(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        assert self.may_go_on.wait(10)
        if "bad" in items:
            raise ValueError("bad")
        return [item.upper() for item in items]


def run(test: Callable[[Batcher[str, str], Echo], Awaitable[None]], *, max_batch: int = 10) -> Echo:
    echo = Echo()

    async def main() -> None:
        await test(Batcher(echo, max_batch=max_batch, max_waiting=30, on_batch=lambda _: None), echo)

    asyncio.run(asyncio.wait_for(main(), 20))
    return echo


async def submit_behind_a_first(
    batcher: Batcher[str, str], echo: Echo, *others: tuple[str, int]
) -> list[str | BaseException]:
    """The first occupies the thread, so that the others wait together."""
    tasks = [asyncio.create_task(batcher.submit("first", size=1))]
    while not echo.batches:
        await asyncio.sleep(0.01)
    tasks += [asyncio.create_task(batcher.submit(item, size=size)) for item, size in others]
    await asyncio.sleep(0.05)
    echo.may_go_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_together_is_run_together_up_to_the_size_of_a_batch() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        results = await submit_behind_a_first(batcher, echo, ("a", 4), ("b", 6), ("c", 1), ("d", 2))
        assert results == ["FIRST", "A", "B", "C", "D"]

    assert run(test).batches == [["first"], ["a", "b"], ["c", "d"]]


def test_an_item_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        assert await submit_behind_a_first(batcher, echo, ("large", 25), ("a", 1)) == ["FIRST", "LARGE", "A"]

    assert run(test).batches == [["first"], ["large"], ["a"]]


def test_too_much_waiting_is_refused_at_once() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        *answered, refused = await submit_behind_a_first(batcher, echo, ("a", 25), ("b", 5), ("c", 1))
        assert answered == ["FIRST", "A", "B"]
        assert isinstance(refused, OverloadedError)
        assert batcher.waiting == 0

    run(test)


def test_what_breaks_a_batch_breaks_only_its_own_request() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        first, good, bad, other = await submit_behind_a_first(batcher, echo, ("good", 1), ("bad", 1), ("other", 1))
        assert (first, good, other) == ("FIRST", "GOOD", "OTHER")
        assert isinstance(bad, ValueError)

    run(test)


def test_a_client_that_has_gone_costs_no_work() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        first = asyncio.create_task(batcher.submit("first", size=1))
        while not echo.batches:
            await asyncio.sleep(0.01)
        gone = asyncio.create_task(batcher.submit("gone", size=1))
        await asyncio.sleep(0.05)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        echo.may_go_on.set()
        assert await first == "FIRST"
        assert await batcher.submit("next", size=1) == "NEXT"

    assert run(test).batches == [["first"], ["next"]]
