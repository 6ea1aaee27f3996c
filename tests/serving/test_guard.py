"""Tokens, limits and failures, on the same routes without a server around them."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving import guard
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs, read_token
from deeped_ray.serving.service import LinkingService
from deeped_ray.serving.work import layers
from deeped_ray.types import DeepEdError

TOKEN = "0123456789abcdef-token"
BODY = {"text": "Montreal met Toronto in the Stanley Cup."}


def ask(service: LinkingService, *requests: dict[str, Any], token: str | None = None) -> list[httpx.Response]:
    """All at once."""

    async def gather() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_api(service, token=token))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await asyncio.gather(*(client.request(**request) for request in requests))

    return asyncio.run(gather())


def link(**more: Any) -> dict[str, Any]:
    return {"method": "POST", "url": "/link", "json": BODY, **more}


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        ("Bearer 0123456789abcdef-tokem", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer ", 401),
        ("", 401),
        ("Bearer tökén", 401),
    ],
)
def test_only_the_right_token_is_let_in(service: LinkingService, header: str, status: int) -> None:
    (reply,) = ask(service, link(headers={"Authorization": header.encode()}), token=TOKEN)
    assert reply.status_code == status
    if status == 401:
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert "mentions" not in reply.text


def test_probes_and_the_page_need_no_token(service: LinkingService) -> None:
    open_routes = [{"method": "GET", "url": url} for url in ("/healthz", "/readyz", "/", "/page/page.js")]
    assert [reply.status_code for reply in ask(service, *open_routes, token=TOKEN)] == [200] * 4
    closed = [{"method": "GET", "url": url} for url in ("/version", "/entities/Apple", "/metrics")]
    closed.append({"method": "POST", "url": "/"})
    assert [reply.status_code for reply in ask(service, *closed, token=TOKEN)] == [401] * 4


def test_a_token_comes_from_a_file_and_is_not_a_short_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "short").write_text("secret")
    (tmp_path / "foreign").write_text("schlüssel-mit-umlauten")
    assert read_token(str(tmp_path / "token")) == TOKEN
    assert read_token(None) is None
    with pytest.raises(DeepEdError, match="6 characters"):
        read_token(str(tmp_path / "short"))
    with pytest.raises(DeepEdError, match="all ASCII"):
        read_token(str(tmp_path / "foreign"))
    with pytest.raises(DeepEdError, match="Cannot read the API token"):
        read_token(str(tmp_path / "nowhere"))


class Client:
    """A client that sends a body in pieces and then goes."""

    def __init__(self, *pieces: bytes) -> None:
        self._messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
        ]
        self.statuses: list[int] = []

    async def receive(self) -> dict[str, Any]:
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.statuses += [message["status"]] if "status" in message else []


@pytest.mark.parametrize(("piece", "counted", "sent"), [(b"x", 499, []), (b"x" * 3_000_000, 413, [413])])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_counted_as_gone(
    service: LinkingService, monkeypatch: pytest.MonkeyPatch, piece: bytes, counted: int, sent: list[int]
) -> None:
    requests: list[tuple[str, int]] = []
    monkeypatch.setattr(service.metrics, "request", lambda route, status, _: requests.append((route, status)))
    client = Client(piece, piece, piece)
    scope = {"type": "http", "method": "POST", "path": "/link", "headers": [], "query_string": b""}
    asyncio.run(create_api(service)(scope, client.receive, client.send))
    assert (requests, client.statuses) == ([("/link", counted)], sent)


class Slow(Client):
    """A client that sends its pieces at once and then nothing, without going."""

    async def receive(self) -> dict[str, Any]:
        return self._messages.pop(0) if self._messages else await asyncio.Event().wait() and {}


@pytest.mark.parametrize("piece", [b"{", b"x" * 9_000_000])
def test_a_body_that_does_not_come_is_given_up(
    service: LinkingService, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(guard, "BODY_GRACE_S", 0.05)
    monkeypatch.setattr(guard, "MAX_BODY_S", 0.1)
    client = Slow(piece)
    scope = {"type": "http", "method": "POST", "path": "/link", "headers": [], "query_string": b""}
    asyncio.run(create_api(service)(scope, client.receive, client.send))
    assert client.statuses == [408]


class Bursting(Client):
    """Sends its pieces at once, then a byte every 10 ms."""

    async def receive(self) -> dict[str, Any]:
        if not self._messages:
            await asyncio.sleep(0.01)
            self._messages.append({"type": "http.request", "body": b"x", "more_body": True})
        return self._messages.pop(0)


def test_a_burst_buys_no_time_for_a_trickle(service: LinkingService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_GRACE_S", 0.3)
    monkeypatch.setattr(guard, "MAX_BODY_S", 10_000.0)  # so it is not this limit that ends it
    client = Bursting(b"x" * 2_500_000)
    scope = {"type": "http", "method": "POST", "path": "/link", "headers": [], "query_string": b""}
    asyncio.run(create_api(service)(scope, client.receive, client.send))
    assert client.statuses == [408]


def test_get_and_head_take_no_body(service: LinkingService) -> None:
    requests = [{"method": method, "url": "/healthz", "content": b"x"} for method in ("GET", "HEAD")]
    chunked = {"method": "GET", "url": "/", "headers": {"Transfer-Encoding": "chunked"}}
    replies = ask(service, *requests, chunked, token=TOKEN)
    assert [(reply.status_code, reply.headers["Connection"]) for reply in replies] == [(400, "close")] * 3
    assert ask(service, {"method": "GET", "url": "/healthz", "headers": {"Content-Length": "0"}})[0].status_code == 200


def test_paths_that_do_not_exist_are_not_redirected(service: LinkingService) -> None:
    urls = ("/link/", "/healthz/", "/docs/", "/page", "/redoc", "/nowhere")
    replies = ask(service, *({"method": "GET", "url": url, "headers": {"Host": "evil.test"}} for url in urls))
    assert [reply.status_code for reply in replies] == [404] * 6
    assert all("/docs lists all routes" in reply.json()["detail"] for reply in replies)


def test_a_failure_of_ours_shows_no_traceback(service: LinkingService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.lookup, "mention", lambda _: 1 / 0)
    (reply,) = ask(service, {"method": "GET", "url": "/mentions/Apple"})
    assert (reply.status_code, list(reply.json())) == (500, ["detail"])
    assert "ZeroDivisionError" not in reply.text
    assert "model=global" in reply.headers["Deeped-Version"]


def test_a_replica_that_links_differently_than_at_its_start_is_not_well(
    service: LinkingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = [{"method": method, "url": url} for url in ("/healthz", "/readyz") for method in ("GET", "HEAD")]
    assert [reply.status_code for reply in ask(service, *probes)] == [200] * 4
    monkeypatch.setattr(service, "_expected", [("Something", "else")])
    replies = ask(service, *probes)
    assert [reply.status_code for reply in replies] == [503] * 4
    assert "Self-check failed" in replies[0].json()["detail"]


def test_a_linker_that_links_no_title_to_itself_does_not_start(
    mini_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkingService, "_answers_to", lambda *_: [("Montreal", "Toronto")])
    with pytest.raises(DeepEdError, match=r"Self-check failed: the linker links none of .* Retrain it with"):
        LinkingService(AppArgs(kb=str(mini_kb.root)))


@pytest.mark.parametrize("content_type", ["", "application/x-www-form-urlencoded", "application/json"])
def test_json_is_read_whatever_it_is_called(service: LinkingService, content_type: str) -> None:
    request = {"method": "POST", "url": "/", "content": b'{"text": "Montreal met Toronto."}'}
    (reply,) = ask(service, {**request, "headers": {"Content-Type": content_type}})
    assert [row[2] for row in reply.json()] == ["Montreal", "Toronto"]


@pytest.mark.parametrize(
    "document",
    [
        {"text": "a", "spans": [["", ""]] * 10_000},
        {f"key{i}": 0 for i in range(10_000)},
        {"text": "a", "spans": [[0] * 9_000]},
    ],
)
def test_a_large_body_of_mistakes_is_refused_quickly(service: LinkingService, document: dict[str, Any]) -> None:
    start = time.process_time()  # not the clock's, which counts what other processes do
    (reply,) = ask(service, link(json=[document] * 20))
    assert reply.status_code in (413, 422)
    assert len(reply.content) < 10_000
    assert time.process_time() - start < 3


def test_no_request_may_ask_for_too_much_work(service: LinkingService) -> None:
    long = {"text": "a" * 600_000, "spans": []}
    crowded = {"text": "a " * 6_000, "spans": [[i, i + 1] for i in range(0, 12_000, 2)]}
    replies = ask(service, link(json=[long, long]), link(json=[crowded, crowded]))
    assert [reply.status_code for reply in replies] == [413, 413]
    assert "1,200,000 characters" in replies[0].json()["detail"]
    assert "12,000 mentions" in replies[1].json()["detail"]


def test_words_and_names_without_end_are_not_remembered(service: LinkingService) -> None:
    words, names = service.linker.inputs.words, service.linker.inputs.retriever.names.index
    before = words._remembered.cache_info().currsize, names._remembered.cache_info().currsize
    text = "Б" * 100_000
    (reply,) = ask(service, link(json={"text": text, "spans": [[0, len(text)]]}))
    assert reply.json()["mentions"][0]["entity"] is None
    assert (words._remembered.cache_info().currsize, names._remembered.cache_info().currsize) == before


def test_overlapping_spans_of_rel_and_nif_are_linked_each_by_itself(service: LinkingService) -> None:
    body = {"text": "The Stanley Cup in Montreal", "spans": [[4, 11], [12, 3], [19, 8]]}
    (reply,) = ask(service, {"method": "POST", "url": "/", "json": body})
    # REL leaves out what probably means none of the candidates
    assert {"Stanley Cup", "Montreal"} <= {row[2] for row in reply.json()} <= {"Stanley Cup", "Cup", "Montreal"}
    assert ask(service, link(json={"text": "Stanley Cup", "spans": [[0, 11], [8, 11]]}))[0].status_code == 422


def test_layers_hold_each_span_once_and_none_that_overlap() -> None:
    assert layers([(0, 4), (2, 6), (4, 8), (0, 9), (2, 6)]) == [[(0, 9)], [(0, 4), (4, 8)], [(2, 6)]]


def test_spans_that_all_overlap_are_laid_out_quickly() -> None:
    nested = [(start, end) for start in range(100) for end in range(101, 201)]
    start = time.process_time()
    assert sorted(layers(nested)) == sorted([span] for span in nested)
    assert time.process_time() - start < 1  # the event loop waits for it
