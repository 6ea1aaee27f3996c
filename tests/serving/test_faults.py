"""The service under load while replicas come, die and change, and when it is asked for too much."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from deeped_ray.running.local_ray import living
from tests.serving.conftest import Served, wait_until

BODY = {"text": "Montreal met Toronto in the Stanley Cup.", "explain": False}
TOKEN = "0123456789abcdef-token"
QUICK_TO_GROW = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 1}
"""A second replica comes with what a few clients ask that pause."""
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


class Load:
    """Clients that ask all the time, and remember what went wrong with which request, and when it began.

    They pause between requests: else they would take the processors from the replica that a test waits for.
    """

    def __init__(self, url: str, *, clients: int, pause_s: float) -> None:
        self._url, self._pause_s, self._end = url, pause_s, threading.Event()
        self.num_answered = 0
        self.knowledge_bases: list[str] = []
        self.failures: list[tuple[float, str]] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, trust_env=False, headers=WITH_TOKEN) as client:
            while not self._end.wait(self._pause_s):
                began = time.monotonic()
                try:
                    reply = client.post("/link", json=BODY)
                    reply.raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append((began, repr(error)))
                else:
                    self.num_answered += 1
                    self.knowledge_bases.append(reply.json()["version"]["knowledge_base"])

    @classmethod
    @contextmanager
    def on(cls, url: str, *, clients: int, pause_s: float = 0.1) -> Iterator["Load"]:
        load = cls(url, clients=clients, pause_s=pause_s)
        for thread in load._threads:
            thread.start()
        try:
            yield load
        finally:
            load._end.set()
            for thread in load._threads:
                thread.join()

    def wait_for(self, number: int) -> None:
        """Until so many more requests have been answered."""
        target = self.num_answered + number
        wait_until(lambda: self.num_answered >= target, f"{number} more answers")

    def wait_for_knowledge_base(self, part: str) -> None:
        wait_until(lambda: self.knowledge_bases[-20:] == [part] * 20, f"only {part} answers")


def test_a_replica_comes_with_the_load_and_a_killed_one_fails_no_request_that_begins_after(served: Served) -> None:
    with served.changed(autoscaling_config=QUICK_TO_GROW), Load.on(served.url, clients=8, pause_s=0.005) as load:
        served.wait_for_replicas(2)
        load.wait_for(100)
        assert load.failures == []
        victim = min(served.ready())
        os.kill(victim, signal.SIGKILL)
        while living([victim]):  # until then it may still take a request
            time.sleep(0.001)
        killed = time.monotonic()
        load.wait_for(300)
        served.wait_for_replicas(2, without=victim)
        load.wait_for(100)
    late = [failure for failure in load.failures if failure[0] > killed]
    assert late == []
    assert len(load.failures) <= 8  # no more than the victim had in hand


def test_a_small_queue_refuses_with_retry_after(served: Served) -> None:
    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=served.url, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*(client.post("/link", json=BODY) for _ in range(50)))

    def refused() -> list[httpx.Response]:
        replies = asyncio.run(ask())
        assert {reply.status_code for reply in replies} <= {200, 503}
        return [reply for reply in replies if reply.status_code == 503]

    with served.changed(max_ongoing_requests=1, max_queued_requests=1):
        wait_until(refused, "some of 50 requests are refused")
        assert {reply.headers.get("Retry-After") for reply in refused()} == {"1"}
    wait_until(lambda: not refused(), "all of 50 requests are answered")


def test_two_hundred_clients_at_once_are_all_answered(served_url: str) -> None:
    async def ask() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=served_url, timeout=60, trust_env=False, limits=limits) as client:
            replies = await asyncio.gather(*(client.post("/link", json=BODY) for _ in range(200)))
        return [len(reply.json()["mentions"]) for reply in replies if reply.status_code == 200]

    assert asyncio.run(ask()) == [3] * 200
