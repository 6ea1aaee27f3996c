"""Tokens, limits and overload, on the same routes without a server around them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.types import DeepEdError
from serve.api import create_api
from serve.app import read_token
from serve.service import LinkingService

TOKEN = "0123456789abcdef-token"
BODY = {"text": "Montreal met Toronto in the Stanley Cup."}


@pytest.fixture(scope="module")
def service(mini_kb: KnowledgeBase) -> LinkingService:
    return LinkingService(str(mini_kb.root), "global", max_batch_mentions=100, max_waiting_mentions=8)


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
    closed = [{"method": "GET", "url": url} for url in ("/version", "/entities/Apple", "/metrics", "/openapi.json")]
    closed.append({"method": "POST", "url": "/"})
    assert [reply.status_code for reply in ask(service, *closed, token=TOKEN)] == [401] * 5


def test_a_token_comes_from_a_file_and_is_not_a_short_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "short").write_text("secret")
    assert read_token(str(tmp_path / "token")) == TOKEN
    assert read_token(None) is None
    with pytest.raises(DeepEdError, match="6 characters"):
        read_token(str(tmp_path / "short"))
    with pytest.raises(DeepEdError, match="Cannot read the API token"):
        read_token(str(tmp_path / "nowhere"))


def test_overload_is_refused_with_retry_after(service: LinkingService) -> None:
    replies = ask(service, *[link()] * 20)
    refused = [reply for reply in replies if reply.status_code == 503]
    assert {reply.status_code for reply in replies} == {200, 503}
    assert all(reply.headers["Retry-After"] == "1" for reply in refused)
    assert refused[0].json()["detail"] == "Too many requests are waiting. Try again shortly."
    assert ask(service, link())[0].status_code == 200


def test_a_failure_of_ours_shows_no_traceback(service: LinkingService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.lookup, "name", lambda _: 1 / 0)
    transport = httpx.ASGITransport(create_api(service), raise_app_exceptions=False)

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/mentions/Apple")

    reply = asyncio.run(get())
    assert (reply.status_code, list(reply.json())) == (500, ["detail"])
    assert "ZeroDivisionError" not in reply.text


def test_a_replica_that_links_differently_than_at_its_start_is_not_well(
    service: LinkingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.check()
    monkeypatch.setattr(service, "_known", (service._known[0], "Something else"))
    with pytest.raises(RuntimeError, match="not to 'Something else' any more"):
        service.check()
