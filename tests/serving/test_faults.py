"""The service under load while replicas die and versions change, and under abuse."""

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.local_ray import free_ports, living, local_ray
from deeped_ray.serving.local import deploy, run_serve, write_config
from tests.serving.conftest import Served
from tests.serving.test_api import NIF

BODY = {"text": "Montreal met Toronto in the Stanley Cup.", "explain": False}
NUM_MALFORMED = 1000
TOKEN = "0123456789abcdef-token"
SCALE = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 2, "upscale_delay_s": 1.0}


class Load:
    """Clients that ask all the time, and remember what went wrong with which request, and when it began."""

    def __init__(self, url: str, *, clients: int) -> None:
        self._url, self._end = url, threading.Event()
        self.num_answered = 0
        self.models: list[str] = []
        self.failures: list[tuple[float, str]] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, trust_env=False) as client:
            while not self._end.is_set():
                began = time.monotonic()
                try:
                    reply = client.post("/link", json=BODY)
                    reply.raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append((began, repr(error)))
                else:
                    self.num_answered += 1
                    self.models.append(reply.json()["version"]["model"])

    @classmethod
    @contextmanager
    def on(cls, url: str, *, clients: int = 8) -> Iterator["Load"]:
        load = cls(url, clients=clients)
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
        target, deadline = self.num_answered + number, time.monotonic() + 60
        while self.num_answered < target:
            assert time.monotonic() < deadline, f"{self.num_answered} of {target} answered"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def scaled(mini_kb: KnowledgeBase) -> Iterator[Served]:
    """A service of its own, with one replica to begin with."""
    with local_ray(num_cpus=4) as ray:
        port = free_ports(1)[0]
        yield Served(deploy(ray, mini_kb.root, port=port, autoscaling_config=SCALE), port, ray)


# The tests of this service build on one another: it grows to two replicas, loses one, and changes its version twice.


def test_a_replica_comes_with_the_load(scaled: Served) -> None:
    scaled.wait_for_replicas(1)
    assert len(scaled.ready()) == 1
    with Load.on(scaled.url, clients=12) as load:
        scaled.wait_for_replicas(2)
        load.wait_for(50)
    assert load.failures == []


def test_a_killed_replica_fails_no_request_that_begins_after(scaled: Served) -> None:
    scaled.wait_for_replicas(2)
    victim = min(scaled.ready())
    with Load.on(scaled.url) as load:
        load.wait_for(100)
        os.kill(victim, signal.SIGKILL)
        while living([victim]):  # until then it may still take a request
            time.sleep(0.001)
        killed = time.monotonic()
        load.wait_for(300)
        scaled.wait_for_replicas(2, without=victim)
        load.wait_for(100)
    late = [failure for failure in load.failures if failure[0] > killed]
    assert late == []
    assert len(load.failures) <= 8  # no more than the victim had in hand


def test_a_new_version_is_swapped_in_without_a_failed_request(
    scaled: Served, mini_kb: KnowledgeBase, tmp_path: Path
) -> None:
    another = tmp_path / "another"
    shutil.copytree(mini_kb.root, another)
    args = {"kb": str(another), "model": "local"}
    config = write_config(tmp_path / "serve.yaml", scaled.port, args, autoscaling_config=SCALE)
    with Load.on(scaled.url, clients=4) as load:
        load.wait_for(50)
        run_serve(scaled.ray, config)
        deadline = time.monotonic() + 120
        while load.models[-20:] != ["local"] * 20:
            assert time.monotonic() < deadline, "the new version did not come"
            time.sleep(0.5)
        load.wait_for(100)
    assert load.failures == []
    assert set(load.models) == {"global", "local"}


def test_a_small_queue_refuses_with_retry_after_and_a_token_is_asked_for(
    scaled: Served, mini_kb: KnowledgeBase, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    args = {"kb": str(mini_kb.root), "model": "global", "token_file": str(tmp_path / "token")}
    small = {"max_ongoing_requests": 1, "max_queued_requests": 1, "autoscaling_config": SCALE | {"max_replicas": 1}}
    run_serve(scaled.ray, write_config(tmp_path / "serve.yaml", scaled.port, args, **small))

    async def ask(number: int, **headers: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=scaled.url, timeout=60, trust_env=False, headers=headers) as client:
            return await asyncio.gather(*(client.post("/link", json=BODY) for _ in range(number)))

    deadline = time.monotonic() + 120
    while {reply.status_code for reply in asyncio.run(ask(4))} - {401, 503}:
        assert time.monotonic() < deadline, "the new version did not come"
        time.sleep(0.5)
    assert httpx.get(f"{scaled.url}/healthz", trust_env=False, timeout=60).status_code == 200
    replies = asyncio.run(ask(50, Authorization=f"Bearer {TOKEN}"))
    assert {reply.status_code for reply in replies} == {200, 503}
    assert {reply.headers.get("Retry-After") for reply in replies if reply.status_code == 503} == {"1"}


def test_two_hundred_clients_at_once_are_all_answered(served_url: str) -> None:
    async def ask() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=served_url, timeout=60, trust_env=False, limits=limits) as client:
            replies = await asyncio.gather(*(client.post("/link", json=BODY) for _ in range(200)))
        return [len(reply.json()["mentions"]) for reply in replies if reply.status_code == 200]

    assert asyncio.run(ask()) == [3] * 200


def malformed(examples: list[Any]) -> SearchStrategy[bytes]:
    """Bodies that are almost right, JSON of any other shape, and no JSON at all."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    )
    broken = st.sampled_from(examples).flatmap(
        lambda example: st.sampled_from(sorted(example)).flatmap(lambda key: values.map(lambda v: {**example, key: v}))
    )
    turtle = st.tuples(st.integers(0, len(NIF)), st.binary(max_size=6)).map(
        lambda change: NIF[: change[0]].encode() + change[1] + NIF[change[0] + 1 :].encode()
    )
    shaped = st.one_of(broken, values, st.lists(broken, max_size=3)).map(json.dumps).map(str.encode)
    cut = st.sampled_from([json.dumps(example).encode() for example in examples]).flatmap(
        lambda body: st.tuples(st.integers(0, len(body)), st.binary(max_size=6)).map(
            lambda change: body[: change[0]] + change[1] + body[change[0] + 1 :]
        )
    )
    return st.one_of(shaped, cut, turtle, st.binary(max_size=200))


def test_a_thousand_malformed_bodies_give_no_server_error(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    routes = [path for path, methods in described["paths"].items() if "post" in methods]
    schemas = described["components"]["schemas"].values()
    examples = [example for schema in schemas for example in schema.get("examples", [])]
    statuses = []

    @settings(max_examples=NUM_MALFORMED, deadline=None, derandomize=True, database=None)
    @given(malformed(examples), st.sampled_from(routes))
    def send(body: bytes, route: str) -> None:
        reply = client.post(route, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code < 500, reply.text
        assert "Traceback" not in reply.text
        statuses.append(reply.status_code)

    send()
    assert len(statuses) >= NUM_MALFORMED
    assert statuses.count(422) > NUM_MALFORMED / 2
    assert client.get("/healthz").status_code == 200
