"""The API in this process, and one real Ray Serve behind HAProxy, started as `make serve` starts it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.local_ray import LocalRay, free_ports, living, local_ray
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.deploy import Serve
from deeped_ray.serving.local import deploy, local_config, serve_of
from deeped_ray.serving.service import LinkingService
from tests.conftest import copy_of

ONE = {"min_replicas": 1, "max_replicas": 1}
"""A replica takes 5 s of processor time to start: none comes because a test happens to ask much."""
USUAL: dict[str, Any] = {"autoscaling_config": ONE, "health_check_period_s": 1}
"""A replica that died is missed after a second, not after ten."""


@pytest.fixture(scope="package")
def service(mini_kb: KnowledgeBase) -> LinkingService:
    return LinkingService(AppArgs(kb=str(mini_kb.root)))


class InProcess(httpx.BaseTransport):
    """Hands requests to an ASGI app, on an event loop of its own."""

    def __init__(self, app: Any) -> None:
        self._app, self._loop = httpx.ASGITransport(app), asyncio.new_event_loop()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._loop.run_until_complete(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        reply = await self._app.handle_async_request(request)
        return httpx.Response(reply.status_code, headers=reply.headers, content=await reply.aread())

    def close(self) -> None:
        self._loop.close()


@pytest.fixture(scope="package")
def client(service: LinkingService) -> Iterator[httpx.Client]:
    """The routes without a server around them."""
    with httpx.Client(transport=InProcess(create_api(service)), base_url="http://test") as client:
        yield client


class Stub(BaseHTTPRequestHandler):
    """Stands for a replica. A client that hangs up, as attackers do, is nothing to tell of."""

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        raise NotImplementedError

    def read_body(self) -> None:
        """Returns once it is here, or the client gone."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_message(self, *_: object) -> None:
        pass


def wait_until(holds: Callable[[], Any], what: str, *, timeout_s: float = 180) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)


@dataclass(frozen=True)
class Served:
    url: str
    port: int
    ray: LocalRay
    kb: Path
    stop: Callable[[], None]
    """ends the Ray, for the last test"""

    @contextmanager
    def changed(self, args: dict[str, Any] | None = None, **deployment: Any) -> Iterator[None]:
        """Deploys other settings, and the usual ones afterwards."""
        self._deploy(args or {}, deployment)
        try:
            yield
        finally:
            self._deploy({}, {})
            wait_until(self._is_usual, "the service is as before")

    def _deploy(self, args: dict[str, Any], deployment: dict[str, Any]) -> None:
        args, deployment = {"kb": str(self.kb)} | args, USUAL | deployment
        self.serve.put(local_config(self.port, args, **deployment))

    @property
    def serve(self) -> Serve:
        return serve_of(self.ray)

    def _is_usual(self) -> bool:
        replies = [httpx.get(f"{self.url}/version", trust_env=False, timeout=60) for _ in range(10)]
        return all(reply.json().get("model") == "global" for reply in replies)

    def wait_for_replicas(self, number: int, *, without: int = -1) -> None:
        wait_until(lambda: len(self.ready() - {without}) >= number, f"{number} replicas besides {without}")

    def ready(self) -> set[int]:
        """Process ids of the replicas that run, as Serve sees it, without those that it has not missed yet."""
        deployments = self.serve.applications()["linker"]["deployments"].values()
        replicas = [replica for deployment in deployments for replica in deployment["replicas"]]
        return set(living(replica["pid"] for replica in replicas if replica["state"] == "RUNNING"))


@pytest.fixture(scope="package")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The only real Serve of the tests. It starts with one replica, on a copy that tests may damage and restore."""
    port = free_ports(1)[0]
    with ExitStack() as stack:
        ray = stack.enter_context(local_ray(num_cpus=4))  # while another process makes the knowledge base
        kb = copy_of(request.getfixturevalue("mini_kb"), tmp_path_factory.mktemp("served") / "kb").root
        yield Served(deploy(ray, kb, port=port, **USUAL), port, ray, kb, stack.close)


@pytest.fixture(scope="package")
def served_url(served: Served) -> str:
    return served.url


@pytest.fixture(scope="package")
def served_client(served_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served_url, timeout=60, trust_env=False) as client:
        yield client
