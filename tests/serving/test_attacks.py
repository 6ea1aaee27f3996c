"""The served endpoint under clients that hold on to it, and when its HAProxy is lost."""

import itertools
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from deeped_ray.running.local_ray import descendants
from tests.attack import SLOW_BODIES, UNFINISHED_HEADERS, attackers, status_line
from tests.serving.conftest import Served, wait_until

HAPROXY, MANAGER = b"bin/haproxy\0-db", b"ray::HAProxyManager"
BODY = {"text": "Montreal met Toronto in the Stanley Cup.", "explain": False}
LONG = {"text": "Montreal met Toronto in the Stanley Cup. " * 200, "explain": False}


@dataclass
class Visitor:
    """Asks again and again, each time on a new connection."""

    url: str
    replies: list[tuple[float, int]] = field(default_factory=list)
    """when, and with which status; 0 if the connection failed"""
    waits_s: list[float] = field(default_factory=list)
    """for every reply"""

    def ask(self, is_over: threading.Event) -> None:
        while not is_over.wait(0.02):
            begun = time.monotonic()
            try:
                status = httpx.post(f"{self.url}/link", json=BODY, trust_env=False, timeout=30).status_code
            except httpx.TransportError:
                status = 0
            self.replies.append((time.monotonic(), status))
            self.waits_s.append(time.monotonic() - begun)

    @property
    def answers(self) -> int:
        return sum(status == 200 for _, status in self.replies)

    @property
    def silence_s(self) -> float:
        """The longest time without an answer."""
        times = [when for when, status in self.replies if status == 200]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    @property
    def usual_s(self) -> float:
        return statistics.median(self.waits_s)

    @classmethod
    @contextmanager
    def at(cls, url: str) -> Iterator["Visitor"]:
        visitor, is_over = cls(url), threading.Event()
        thread = threading.Thread(target=visitor.ask, args=(is_over,))
        thread.start()
        try:
            wait_until(lambda: visitor.answers, "the first answer")
            yield visitor
        finally:
            is_over.set()
            thread.join()


def family(served: Served, name: bytes) -> dict[int, bytes]:
    """Processes of this Serve whose command line has the name, and their command lines. Guardians do not count."""
    found = {}
    for pid in descendants(served.ray.pid):
        with suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return {pid: command for pid, command in found.items() if name in command and b"edge.py" not in command}


def ask(served: Served, *bodies: object) -> list[httpx.Response]:
    return [httpx.post(f"{served.url}/link", json=body, trust_env=False, timeout=60) for body in bodies]


def longest_s(replies: Iterable[httpx.Response]) -> float:
    return max(reply.elapsed.total_seconds() for reply in replies)


@pytest.mark.parametrize("number", [150, 600])
def test_slow_bodies_hold_up_nobody(served: Served, number: int) -> None:
    usual_s = longest_s(ask(served, *[BODY, LONG] * 3))
    with attackers(served.port, SLOW_BODIES, number=number) as clients:
        replies = ask(served, *[BODY, LONG] * 10)
        assert [reply.status_code for reply in replies] == [200] * 20
        assert longest_s(replies) < max(5, 10 * usual_s)  # more than five only where a busy machine draws out all
        misplaced = clients[len(SLOW_BODIES) - 1]
        assert status_line(misplaced) == b"HTTP/1.1 400 Bad Request"


def test_unfinished_headers_hold_up_nobody(served: Served) -> None:
    with attackers(served.port, UNFINISHED_HEADERS, number=4_200) as clients:
        replies = ask(served, *[BODY] * 20)
        assert [reply.status_code for reply in replies] == [200] * 20
        assert status_line(clients[2]) == b"HTTP/1.1 408 Request Time-out"


def never_reading(served: Served) -> socket.socket:
    """A client that asks for a large answer and has no room for it."""
    body = json.dumps(LONG | {"explain": True}).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", served.port))
    client.sendall(b"POST /link HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return client


def test_answers_that_nobody_reads_hold_up_nobody(served: Served) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(never_reading(served)) for _ in range(40)]
        for client in clients:
            client.recv(1)  # its answer is on the way
        assert [reply.status_code for reply in ask(served, *[BODY, LONG] * 5)] == [200] * 10


@pytest.mark.parametrize("name", [HAPROXY, MANAGER])
def test_a_lost_haproxy_or_manager_costs_less_than_five_seconds(served: Served, name: bytes) -> None:
    with Visitor.at(served.url) as visitor:
        lost, managers = family(served, HAPROXY), family(served, MANAGER)
        for pid in family(served, name):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: family(served, MANAGER).keys() - managers, "there is a new manager")
        wait_until(lambda: is_rays(family(served, HAPROXY), lost), "Ray's own HAProxy is back")
        seen = visitor.answers
        wait_until(lambda: visitor.answers > seen + 50, "50 more answers")
    assert visitor.silence_s < max(5, 50 * visitor.usual_s)  # more than five only where the machine is busy
    assert {status for _, status in visitor.replies} <= {200, 503, 0}


def is_rays(running: dict[int, bytes], lost: dict[int, bytes]) -> bool:
    """Whether one HAProxy is left, and it is not the spare."""
    commands = [command for pid, command in running.items() if pid not in lost]
    return len(commands) == 1 and b"-sf" in commands[0]
