"""What the service logs and answers tells no token, neither its own nor a client's nor Ray's."""

import asyncio
import logging
from pathlib import Path

import httpx
import pytest

from deeped_ray.running.local_ray import descendants
from deeped_ray.serving.api import create_api
from deeped_ray.serving.service import LinkingService
from tests.serving.conftest import Served

TOKEN = "correct-horse-battery-staple"
WRONG = "incorrect-horse-battery-staple"


def test_the_token_is_in_no_reply_and_no_log(service: LinkingService, caplog: pytest.LogCaptureFixture) -> None:
    api = create_api(service, token=TOKEN)

    @api.get("/broken")
    def broken() -> None:
        raise RuntimeError

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(api)
        paths = ("/version", "/healthz", "/openapi.json", "/broken", "/entities/nowhere", "/none")
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [
                await client.request(method, path, headers={"Authorization": f"Bearer {token}"})
                for token in (TOKEN, WRONG)
                for method, path in (*(("GET", path) for path in paths), ("POST", "/link"))
            ]

    with caplog.at_level(logging.DEBUG):
        replies = asyncio.run(ask())
    assert [reply.status_code for reply in replies] == [200, 200, 200, 500, 404, 404, 422, 401, 200, 200, *[401] * 4]
    told = caplog.text + "".join(f"{reply.headers}{reply.text}" for reply in replies)
    assert "a request failed" in told
    assert TOKEN not in told
    assert WRONG not in told


def test_logs_and_process_lists_of_a_real_service_hold_no_token(served: Served, served_client: httpx.Client) -> None:
    for path in ("/version", f"/entities/nowhere?access_key={WRONG}", f"/none?token={WRONG}"):
        served_client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    served_client.post("/link", content=b"{", headers={"Authorization": f"Bearer {TOKEN}"})
    rays = Path(served.ray.environment["RAY_AUTH_TOKEN_PATH"])
    secrets = [TOKEN.encode(), WRONG.encode(), rays.read_bytes()]
    logs = [path for path in served.ray.log.parent.rglob("*") if path.is_file() and path != rays]
    assert any(b"/entities/" in path.read_bytes() for path in logs)
    assert [path.name for path in logs if any(secret in path.read_bytes() for secret in secrets)] == []
    commands = [Path(f"/proc/{pid}/cmdline") for pid in descendants(served.ray.pid)]
    assert not any(secret in path.read_bytes() for path in commands if path.exists() for secret in secrets)
    assert rays.stat().st_mode & 0o077 == 0
