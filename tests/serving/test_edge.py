"""The program that Ray runs as its HAProxy, with configurations that Ray itself writes, in front of a small server."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

from deeped_ray.running.local_ray import descendants, free_ports
from deeped_ray.serving import edge
from tests.attack import POST, attackers, first_answer, status_line
from tests.serving.conftest import Stub, wait_until

FALLBACK = "SERVE_PROXY_ACTOR-x"


class Replica(Stub):
    """Answers what the path says: /503/plain, /404/ours, ..."""

    def answer(self) -> None:
        self.read_body()
        status, _, kind = self.path.strip("/").partition("/")
        self.send_response(int(status) if status.isdigit() else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if kind == "plain" else "application/json")
        if kind == "ours":
            self.send_header("Deeped-Version", "1")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture(scope="module")
def replica() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Replica) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


class Edge:
    """What Ray's manager does, without Ray: writes the configuration and runs the program."""

    def __init__(self, folder: Path) -> None:
        self.port, metrics, stats = free_ports(3)
        self.config = folder / "haproxy.cfg"
        self._api = HAProxyApi(
            HAProxyConfig(
                http_options=HTTPOptions(host="127.0.0.1", port=self.port),
                socket_path=str(folder / "a"),
                metrics_socket_path=str(folder / "m"),
                server_state_base=str(folder),
                server_state_file=str(folder / "state"),
                metrics_port=metrics,
                stats_port=stats,
            ),
            config_file_path=str(self.config),
        )

    def write(self, *servers: tuple[str, int]) -> None:
        named = [ServerConfig(name, "127.0.0.1", port) for name, port in servers]
        backend = BackendConfig("http-linker", "/", servers=named, app_name="linker")
        self._api.set_backend_configs({"http-linker": backend} if servers else {})
        self._api._generate_config_file_internal()

    @contextmanager
    def run(self, *servers: tuple[str, int]) -> Iterator["subprocess.Popen[bytes]"]:
        self.write(*servers)
        process = subprocess.Popen([sys.executable, edge.__file__, "-db", "-f", str(self.config), "-dR"])
        try:
            wait_until(lambda: edge.running_pid(str(self.config.with_name("a"))) == process.pid, "HAProxy answers")
            yield process
        finally:
            process.kill()
            process.wait()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", trust_env=False, timeout=30)


@pytest.fixture
def proxy(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Edge:
    monkeypatch.setenv("RAY_RAYLET_PID", "0")  # no raylet: a guardian's spare ends at once
    return Edge(tmp_path_factory.mktemp("e"))


def test_a_configuration_that_we_do_not_know_is_refused(proxy: Edge) -> None:
    proxy.write()
    changed = proxy.config.read_text().replace("frontend http_frontend", "frontend web")
    with pytest.raises(edge.ConfigError, match=r"http_frontend.*cannot be protected"):
        edge.protect(changed, files=20_000)
    proxy.config.write_text(changed)
    run = subprocess.run(
        [sys.executable, edge.__file__, "-db", "-f", str(proxy.config)], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, "deploy/haproxy.cfg" in run.stderr) == (1, True)


def test_no_replica_is_an_answer_that_clients_try_again(proxy: Edge) -> None:
    with proxy.run():
        before = proxy.get("/link")
    with proxy.run(("replica", free_ports(1)[0])):
        wait_until(lambda: proxy.get("/link").status_code == 503, "the replica is known to be down")
        down = proxy.get("/link")
    for reply in (before, down):
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
        assert list(reply.json()) == ["detail"]


@pytest.mark.parametrize(
    ("server", "path", "status"),
    [
        ("replica", "/503/plain", 503),
        ("replica", "/500/plain", 500),
        ("replica", "/408/plain", 408),
        (FALLBACK, "/404/plain", 503),
    ],
)
def test_what_serve_says_in_plain_text_becomes_json(
    proxy: Edge, replica: int, server: str, path: str, status: int
) -> None:
    with proxy.run((server, replica)):
        reply = proxy.get(path)
        assert (reply.status_code, list(reply.json())) == (status, ["detail"])
        assert reply.headers.get("Retry-After") == ("1" if status == 503 else None)


def test_what_the_app_says_is_left_alone(proxy: Edge, replica: int) -> None:
    with proxy.run((FALLBACK, replica)):
        replies = [proxy.get(f"/{status}/ours") for status in (200, 404, 500, 503)]
        assert [(reply.status_code, reply.content) for reply in replies] == [
            (status, b"{}") for status in (200, 404, 500, 503)
        ]


@pytest.mark.parametrize(
    ("opening", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", b"400"),
        (b"HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"414"),
        (POST + b"Content-Length: 70000000\r\n\r\n", b"413"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (POST + b"Content-Length: 5\r\n\r\n", b"408"),
    ],
)
def test_what_is_refused_is_refused_in_json_and_hung_up(
    proxy: Edge, replica: int, opening: bytes, status: bytes
) -> None:
    with proxy.run(("replica", replica)), attackers(proxy.port, [opening], number=1) as (client,):
        client.settimeout(30)
        reply = b"".join(iter(lambda: client.recv(65536), b""))  # to its end: the connection is closed
        assert reply.startswith(b"HTTP/1.1 " + status)
        assert b"application/json" in reply


@pytest.mark.parametrize("opening", [b"", POST + b"X: "])
def test_unfinished_headers_are_hung_up(proxy: Edge, replica: int, opening: bytes) -> None:
    """In HTML: HAProxy takes this reply from its own code."""
    with proxy.run(("replica", replica)), attackers(proxy.port, [opening], number=1) as (client,):
        assert status_line(client) == b"HTTP/1.1 408 Request Time-out"


def test_large_bodies_that_do_not_come_are_limited(proxy: Edge, replica: int) -> None:
    unfinished = POST + b"Content-Length: 5000000\r\n\r\n" + b" " * 200_000
    with proxy.run(("replica", replica)), attackers(proxy.port, [unfinished], number=40) as clients:
        # HAProxy's threads count them in any order, so the one too many need not be the last
        assert first_answer(clients) == b"HTTP/1.1 503 Service Unavailable"
        assert proxy.get("/").status_code == 200


@pytest.fixture
def raylet(proxy: Edge, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """What a spare looks at to know whether it is still needed."""
    process = subprocess.Popen(["sleep", "600"])
    monkeypatch.setenv("RAY_RAYLET_PID", str(process.pid))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_spare_answers_until_the_next_haproxy_takes_over(
    proxy: Edge, replica: int, raylet: "subprocess.Popen[bytes]"
) -> None:
    with proxy.run(("replica", replica)) as process:
        process.kill()
        wait_until(lambda: edge.running_pid(str(proxy.config.with_name("s"))), "the spare answers")
        assert proxy.get("/").status_code == 200
        with proxy.run():  # as Ray starts the next one: without replicas at first
            assert [proxy.get("/").status_code for _ in range(5)] == [200] * 5
            wait_until(lambda: not edge.running_pid(str(proxy.config.with_name("s"))), "the spare has ended")
            raylet.kill()
            raylet.wait()


def test_a_spare_ends_with_its_guardian(proxy: Edge, replica: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))
    with proxy.run(("replica", replica)) as process:
        (guardian,) = (pid for pid in descendants(process.pid) if pid != process.pid)
        process.kill()
        wait_until(lambda: edge.running_pid(str(proxy.config.with_name("s"))), "the spare answers")
        os.kill(guardian, signal.SIGKILL)
        wait_until(lambda: not edge.running_pid(str(proxy.config.with_name("s"))), "the spare has ended")


def test_a_haproxy_that_lost_its_manager_hands_over(proxy: Edge, replica: int) -> None:
    with proxy.run(("replica", replica)) as orphan, proxy.run():
        assert orphan.wait(30) == 0
        assert proxy.get("/").status_code == 200


def test_no_spare_follows_a_haproxy_that_ray_drains(proxy: Edge, replica: int) -> None:
    proxy.write(("replica", replica))
    config = edge.protect(proxy.config.read_text(), files=20_000)
    assert edge.is_serving(config)
    proxy._api.cfg.pass_health_checks = False
    proxy.write(("replica", replica))
    assert not edge.is_serving(proxy.config.read_text())
