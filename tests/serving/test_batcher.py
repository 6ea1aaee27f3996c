"""Batches across requests, without a server."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from deeped_ray.linking.pace import Pause
from deeped_ray.serving.batcher import LONG_AT_ONCE, Batcher, OverloadedError


class Echo:
    """Answers every item with itself, once it may go on; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[str], _: Pause) -> list[str | Exception]:
        self.batches.append(list(items))
        self.has_begun.set()
        assert self.may_go_on.wait(10)
        if "bad" in items:
            raise ValueError("bad")
        return [KeyError(item) if item == "refused" else item.upper() for item in items]


def run(test: Callable[[Batcher[str, str], Echo], Awaitable[None]], *, max_batch: int = 10) -> Echo:
    echo = Echo()

    async def main() -> None:
        await test(Batcher(echo, max_batch=max_batch, max_waiting=30, deadline_s=20.0, budget_s=1.0), echo)

    asyncio.run(asyncio.wait_for(main(), 20))
    return echo


async def submit(batcher: Batcher[str, str], *items: tuple[str, int]) -> list["asyncio.Task[str]"]:
    """Returns once all wait or are refused."""
    tasks = [asyncio.create_task(batcher.submit(item, size=size)) for item, size in items]
    await asyncio.sleep(0)  # a task runs until it waits
    return tasks


async def submit_behind_a_first(
    batcher: Batcher[str, str], echo: Echo, *others: tuple[str, int]
) -> list[str | BaseException]:
    """The first occupies the thread, so that the others wait together."""
    tasks = await submit(batcher, ("first", 1))
    await asyncio.to_thread(echo.has_begun.wait, 10)
    tasks += await submit(batcher, *others)
    echo.may_go_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_together_is_run_together_up_to_the_size_of_a_batch() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        results = await submit_behind_a_first(batcher, echo, ("a", 4), ("b", 6), ("c", 1), ("d", 2))
        assert results == ["FIRST", "A", "B", "C", "D"]

    assert run(test).batches == [["first"], ["a", "b"], ["c", "d"]]


def test_too_much_waiting_is_refused_at_once() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        *answered, refused = await submit_behind_a_first(batcher, echo, ("a", 10), ("b", 10), ("c", 10), ("d", 1))
        assert answered == ["FIRST", "A", "B", "C"]
        assert isinstance(refused, OverloadedError)
        assert batcher.waiting == {"short": 0, "long": 0}

    run(test)


def test_long_items_that_wait_refuse_no_short_one() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        *answered, refused, short = await submit_behind_a_first(
            batcher, echo, *((f"long {i}", 15) for i in range(LONG_AT_ONCE)), ("long", 11), ("short", 9)
        )
        assert answered == ["FIRST", *(f"LONG {i}" for i in range(LONG_AT_ONCE))]
        assert isinstance(refused, OverloadedError)
        assert short == "SHORT"
        assert batcher.waiting == {"short": 0, "long": 0}

    run(test)


def test_what_breaks_a_batch_breaks_only_its_own_request() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        first, good, bad, other = await submit_behind_a_first(batcher, echo, ("good", 1), ("bad", 1), ("other", 1))
        assert (first, good, other) == ("FIRST", "GOOD", "OTHER")
        assert isinstance(bad, ValueError)

    run(test)


def test_what_is_refused_in_a_batch_does_not_make_the_others_run_again() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        _, good, refused = await submit_behind_a_first(batcher, echo, ("good", 1), ("refused", 1))
        assert good == "GOOD"
        assert isinstance(refused, KeyError)

    assert run(test).batches == [["first"], ["good", "refused"]]


def test_a_client_that_has_gone_costs_no_work() -> None:
    async def test(batcher: Batcher[str, str], echo: Echo) -> None:
        (first,) = await submit(batcher, ("first", 1))
        await asyncio.to_thread(echo.has_begun.wait, 10)
        (gone,) = await submit(batcher, ("gone", 1))
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        echo.may_go_on.set()
        assert await first == "FIRST"
        assert await batcher.submit("next", size=1) == "NEXT"

    assert run(test).batches == [["first"], ["next"]]
