"""The front proxy, deploy/haproxy.cfg: the real program with our configuration, between attackers and a server with few slots."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from deeped_ray.running.local_ray import free_ports
from deeped_ray.serving import edge
from tests.attack import SLOW_BODIES, UNFINISHED_HEADERS, attackers, status_line
from tests.serving.conftest import Stub, wait_until

CONFIG = Path(__file__).parent.parent.parent / "deploy" / "haproxy.cfg"


class FewSlots(Stub):
    """Reads the body of a request in one of 34 slots: two more than the proxy lends to unfinished bodies."""

    slots = threading.Semaphore(34)

    def answer(self) -> None:
        with self.slots:
            self.read_body()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()


@pytest.fixture(scope="module")
def upstream() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FewSlots) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def front(upstream: int, config: Path = CONFIG, **settings: str) -> Iterator[int]:
    """The port of the proxy."""
    port = free_ports(1)[0]
    settings |= {"DEEPED_LISTEN": f"127.0.0.1:{port}", "DEEPED_UPSTREAM": f"127.0.0.1:{upstream}"}
    proxy = subprocess.Popen([edge.real_haproxy(), "-db", "-f", str(config)], env=os.environ | settings)
    try:
        wait_until(lambda: is_up(port), "the proxy answers")
        yield port
    finally:
        proxy.kill()
        proxy.wait()


def is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_it_has_the_rules_of_our_own_edge() -> None:
    lines = CONFIG.read_text().splitlines()
    for rules in (edge.DEFAULTS, edge.FRONTEND, edge.UPLOADS):
        assert set(rules.splitlines()) <= set(lines)


def test_slow_bodies_and_unfinished_headers_hold_up_nobody(upstream: int) -> None:
    with (
        front(upstream) as port,
        attackers(port, SLOW_BODIES, number=300) as slow,
        attackers(port, UNFINISHED_HEADERS, number=1_000) as unfinished,
    ):
        replies = [httpx.post(f"http://127.0.0.1:{port}/", json={}, trust_env=False, timeout=60) for _ in range(20)]
        assert [reply.status_code for reply in replies] == [200] * 20
        assert status_line(unfinished[2]) == b"HTTP/1.1 408 Request Time-out"
        assert status_line(slow[0]) == b"HTTP/1.1 408 Request Time-out"


def test_an_address_gets_only_so_many_connections(upstream: int, tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    patient = CONFIG.read_text().replace("timeout http-request 5s", "timeout http-request 10m")
    config.write_text(patient.replace("127.0.0.0/8", "10.0.0.0/8"))  # so that this machine has a limit too
    with front(upstream, config, DEEPED_CONNECTIONS_PER_ADDRESS="5") as port:
        with ExitStack() as held:
            for _ in range(50):  # far more than 5: the first ones may come while the connection of `front` still counts
                with suppress(ConnectionError):
                    held.enter_context(socket.create_connection(("127.0.0.1", port)))
            wait_until(lambda: not is_up(port), "five of them are counted")
        wait_until(lambda: is_up(port), "there is room again")
