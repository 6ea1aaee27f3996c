"""One queue bounds finding mentions and linking; a request that is refused in a batch harms no other."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.pace import Pause
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.rel import rel_bytes, write_rel
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.service import LinkingService, Request
from deeped_ray.serving.work import Work

SMALL = {"text": "Montreal met Toronto in the Stanley Cup."}
FIVE_MENTIONS = {"text": "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League."}
LARGE = {"text": "Montreal met Toronto on the ice. " * 40}  # 1,320 characters: 26 mentions are expected


class Gate:
    """Holds the batch thread before its work until it is opened; remembers batches and texts."""

    def __init__(self, service: LinkingService) -> None:
        self._run, self._find = service._batcher._run, service.linker.detector.spans
        self.batches: list[Sequence[Request]] = []
        self.searched: list[str] = []
        self.reached, self.opened = threading.Event(), threading.Event()

    def run(self, batch: Sequence[Request], pause: Pause) -> Sequence[bytes | Exception]:
        self.batches.append(batch)
        self.reached.set()
        assert self.opened.wait(30)
        return self._run(batch, pause)

    def spans(self, text: str, pause: Pause, **options: Any) -> list[tuple[int, int]]:
        self.searched.append(text)
        return self._find(text, pause, **options)


@pytest.fixture
def service(mini_kb: KnowledgeBase) -> LinkingService:
    return LinkingService(AppArgs(kb=str(mini_kb.root), max_batch_mentions=100, max_waiting_mentions=50))


@pytest.fixture
def gate(service: LinkingService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(service)
    monkeypatch.setattr(service._batcher, "_run", gate.run)
    monkeypatch.setattr(service.linker.detector, "spans", gate.spans)
    yield gate
    gate.opened.set()


def behind_a_first(
    service: LinkingService, gate: Gate, test: Callable[[httpx.AsyncClient], Awaitable[list[httpx.Response]]]
) -> list[httpx.Response]:
    """Runs a test while the batch thread is held with a first request, which is answered afterwards."""

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_api(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            first = asyncio.create_task(client.post("/link", json=SMALL))
            await asyncio.to_thread(gate.reached.wait, 30)
            replies = await test(client)
            assert (await first).status_code == 200
            return replies

    return asyncio.run(main())


async def put_into_queue(
    service: LinkingService, client: httpx.AsyncClient, *bodies: Any
) -> list["asyncio.Task[httpx.Response]"]:
    """Returns once all of them wait."""
    tasks = [asyncio.create_task(client.post("/link", json=body)) for body in bodies]
    while len(service._batcher._queue) < len(bodies):
        await asyncio.sleep(0.001)
    return tasks


def test_texts_wait_in_the_queue_before_they_are_searched_for_mentions(service: LinkingService, gate: Gate) -> None:
    async def test(client: httpx.AsyncClient) -> list[httpx.Response]:
        (waiting,) = await put_into_queue(service, client, LARGE)
        refused = await asyncio.gather(*(client.post("/link", json=LARGE) for _ in range(5)))
        assert gate.searched == []
        gate.opened.set()
        return [await waiting, *refused]

    answered, *refused = behind_a_first(service, gate, test)
    assert answered.status_code == 200
    assert [(reply.status_code, reply.headers["Retry-After"]) for reply in refused] == [(503, "1")] * 5
    assert gate.searched == [SMALL["text"], LARGE["text"]]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (FIVE_MENTIONS, 413, "The texts have 5 mentions; the limit is 4."),
        ({"text": "Toronto", "spans": [[0, 9]]}, 422, "Span 0:9 does not lie within the text"),
    ],
)
def test_a_request_that_is_refused_in_a_batch_harms_no_other(
    service: LinkingService, gate: Gate, monkeypatch: pytest.MonkeyPatch, body: Any, status: int, reason: str
) -> None:
    monkeypatch.setattr("deeped_ray.serving.service.MAX_MENTIONS", 4)

    async def test(client: httpx.AsyncClient) -> list[httpx.Response]:
        tasks = await put_into_queue(service, client, body, SMALL)
        gate.opened.set()
        return await asyncio.gather(*tasks)

    refused, answered = behind_a_first(service, gate, test)
    assert (refused.status_code, answered.status_code) == (status, 200)
    assert reason in refused.json()["detail"]
    assert [len(batch) for batch in gate.batches] == [1, 2]


def test_a_replica_with_a_full_queue_is_healthy_but_not_ready(service: LinkingService, gate: Gate) -> None:
    full = {"text": "a" * 49, "spans": [[i, i + 1] for i in range(49)]}

    async def test(client: httpx.AsyncClient) -> list[httpx.Response]:
        (waiting,) = await put_into_queue(service, client, full)
        probes = [await client.get(url) for url in ("/readyz", "/healthz")]
        gate.opened.set()
        await waiting
        return [*probes, await client.get("/readyz")]

    assert [reply.status_code for reply in behind_a_first(service, gate, test)] == [503, 200, 200]


def test_texts_have_about_as_many_mentions_as_the_queue_expects(linker: Linker) -> None:
    documents = read_dataset("mini:test")
    found = sum(1 + len(linker.document(document.text).mentions) for document in documents)
    expected = Work([LinkRequest(text=document.text) for document in documents], write_rel, rel_bytes).size
    assert 0.8 < found / expected < 1.25
