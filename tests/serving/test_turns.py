"""Long work takes turns with short work, and what hangs is ended."""

import asyncio
import faulthandler
import itertools
import math
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from deeped_ray.linking.pace import Pause
from deeped_ray.serving import turns as turns_module
from deeped_ray.serving.batcher import Batcher
from deeped_ray.serving.turns import DeadlineError, Lane, TooLargeError, Turns

LONG, SHORT = 100, 1
NEVER = 60.0


class Recorder:
    """Long items work in steps until they have seen enough; every step and every short item is written down."""

    def __init__(self, *, until: Callable[[list[str]], bool]) -> None:
        self.events: list[str] = []
        self.has_begun = threading.Event()
        self._until = until

    def __call__(self, items: Sequence[str], pause: Pause) -> list[str | Exception]:
        if items[0].startswith("long"):
            while not self._until(self.events):
                self.events.append(items[0])
                self.has_begun.set()
                time.sleep(0.002)
                pause()
            self.events.append(items[0])
        else:
            self.events.extend(items)
        return list(items)


def never(_: list[str]) -> bool:
    return False


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "SLICE_S", 0.005)


def batcher_of(run: Recorder, *, deadline_s: float = NEVER, budget_s: float = NEVER) -> Batcher[str, str]:
    return Batcher(run, max_batch=10, max_waiting=1000, deadline_s=deadline_s, budget_s=budget_s)


def test_short_items_overtake_a_long_one() -> None:
    async def main(recorder: Recorder) -> None:
        batcher = batcher_of(recorder)
        long = asyncio.create_task(batcher.submit("long", size=LONG))
        await asyncio.to_thread(recorder.has_begun.wait)
        for number in range(3):
            assert await batcher.submit(f"short {number}", size=SHORT) == f"short {number}"
        may_end.set()
        assert await long == "long"

    may_end = threading.Event()
    recorder = Recorder(until=lambda _: may_end.is_set())
    asyncio.run(main(recorder))
    assert recorder.events[-1] == "long"


def test_long_items_share_the_time() -> None:
    async def main(recorder: Recorder) -> None:
        batcher = batcher_of(recorder)
        await asyncio.gather(*(batcher.submit(f"long {number}", size=LONG) for number in range(2)))

    def changes(events: list[str]) -> int:
        return sum(a != b for a, b in itertools.pairwise(events))

    recorder = Recorder(until=lambda events: changes(events) >= 4)
    asyncio.run(main(recorder))
    assert changes(recorder.events) >= 4


def test_a_deadline_ends_long_work_between_slices() -> None:
    async def main() -> None:
        await batcher_of(Recorder(until=never), deadline_s=0.05).submit("long", size=LONG)

    with pytest.raises(DeadlineError):
        asyncio.run(main())


def test_who_waits_beyond_the_deadline_gives_up_and_the_next_goes_on() -> None:
    turns = Turns()
    with turns.turn("short"), pytest.raises(DeadlineError), turns.turn("long", deadline=time.monotonic()):
        raise AssertionError("the turn was taken")
    with turns.turn("long"):
        assert not turns.is_wanted()


def test_work_beyond_the_budget_is_refused_before_it_is_done() -> None:
    def run(_: Sequence[str], pause: Pause) -> list[str | Exception]:
        pause(1.5)
        pause(1.0)
        raise AssertionError("this was too much")

    async def main() -> None:
        batcher: Batcher[str, str] = Batcher(run, max_batch=1, max_waiting=9, deadline_s=NEVER, budget_s=2.0)
        await batcher.submit("long", size=LONG)

    with pytest.raises(TooLargeError, match=r"would take 2.5 s of work; the limit is 2 s"):
        asyncio.run(main())


def test_work_for_a_client_that_has_gone_ends() -> None:
    async def main(recorder: Recorder) -> None:
        batcher = batcher_of(recorder, deadline_s=math.inf)  # nothing else ends it
        long = asyncio.create_task(batcher.submit("long", size=LONG))
        await asyncio.to_thread(recorder.has_begun.wait)
        long.cancel()
        assert await batcher.submit("short", size=SHORT) == "short"
        await asyncio.to_thread(batcher._long_threads.shutdown)

    recorder = Recorder(until=never)
    asyncio.run(main(recorder))
    assert set(recorder.events) == {"long", "short"}


def test_lanes_alternate() -> None:
    turns = Turns()
    order: list[Lane] = []

    def work(lane: Lane) -> None:
        with turns.turn(lane):
            order.append(lane)

    lanes: list[Lane] = ["long", "long", "long", "short", "short"]
    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    with turns.turn("long"):
        for number, thread in enumerate(threads, 1):
            thread.start()
            while sum(map(len, turns._waiting.values())) < number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == ["short", "long", "short", "long", "long"]


WATCHED = """
    import asyncio, re, threading
    from deeped_ray.serving.turns import Turns, watch
    turns = Turns()
    async def main():
        watching = asyncio.create_task(watch(turns, limit_s={limit_s}))
        await asyncio.sleep({quiet_s})
        print("still here", flush=True)
        {hang}
        await asyncio.sleep(600)
    asyncio.run(main())
"""
HANGS = [
    're.match("(a+)+$", "a" * 60 + "b")',  # holds the interpreter, on the event loop
    'threading.Thread(target=re.match, args=("(a+)+$", "a" * 60 + "b"), daemon=True).start()',
    'turns.take("short")',  # one turn that does not end, while the event loop is free
]


def test_a_process_that_gets_its_time_late_is_given_more_before_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda after_s, exit: limits.append(after_s))

    async def main() -> None:
        watching = asyncio.create_task(turns_module.watch(Turns(), limit_s=1.0))
        while len(limits) < 2:
            await asyncio.sleep(0)
        time.sleep(0.5)  # nobody's turn comes meanwhile
        number = len(limits)
        while len(limits) == number:
            await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(main())
    assert limits[-1] > 4  # 1 s, and ten times what is left of 0.5 s after the tenth of a second between two looks


def test_a_process_that_hangs_is_ended_with_its_traceback_and_no_other() -> None:
    limits = [{"limit_s": 1.0, "quiet_s": 0.0}] * 2
    limits += [{"limit_s": 5.0, "quiet_s": 6.0}]  # while nothing hangs, the watch lets it be
    codes = [textwrap.dedent(WATCHED).format(hang=hang, **each) for hang, each in zip(HANGS, limits, strict=True)]
    with ThreadPoolExecutor() as pool:  # they mostly wait
        for ended in pool.map(run_code, codes):
            assert ended.stdout == "still here\n"
            assert ended.returncode == 1
            assert "Timeout" in ended.stderr
            assert 'File "<string>"' in ended.stderr


ALONE = """
    import asyncio, time
    from deeped_ray.serving.turns import Slices, Turns, watch
    turns = Turns()
    def work():
        with turns.turn("long"):
            pause = Slices(turns, deadline=time.monotonic() + 60, is_gone=lambda: False, budget_s=60)
            for _ in range(600):
                time.sleep(0.01)
                pause()
    async def main():
        watching = asyncio.create_task(watch(turns, limit_s=5.0))
        await asyncio.to_thread(work)
        print("done", flush=True)
    asyncio.run(main())
"""


def test_long_work_that_pauses_is_no_hang_though_nobody_else_wants_a_turn() -> None:
    ended = run_code(textwrap.dedent(ALONE))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def run_code(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
