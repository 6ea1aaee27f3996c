"""Clients that hold on to a server: they send an opening, and then a little now and then."""

import resource
import selectors
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

POST = b"POST /link HTTP/1.1\r\nHost: test\r\n"
SLOW_BODIES = [
    POST + b"Content-Length: 500\r\n\r\n{",
    POST + b"Content-Length: 7000000\r\n\r\n{",
    POST + b"Content-Length: 5000000\r\n\r\n" + b" " * 200_000,
    POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    POST + b"Expect: 100-continue\r\nContent-Length: 500\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: test\r\nContent-Length: 500\r\n\r\n{",
]
UNFINISHED_HEADERS = [b"", b"P", POST, POST + b"X-Header: "]


@contextmanager
def attackers(port: int, openings: Sequence[bytes], *, number: int) -> Iterator[list[socket.socket]]:
    """`number` connections. Each sends an opening, in turn, and then a byte every 2 s."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients = [_connect(port, openings[i % len(openings)]) for i in range(number)]
    is_over = threading.Event()
    thread = threading.Thread(target=_drip, args=(clients, is_over))
    thread.start()
    try:
        yield clients
    finally:
        is_over.set()
        thread.join()
        for client in clients:
            client.close()


def _connect(port: int, opening: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    with suppress(OSError):  # the server may refuse before it has read all
        client.sendall(opening)
    return client


def _drip(clients: Sequence[socket.socket], is_over: threading.Event) -> None:
    while not is_over.wait(2):
        for client in clients:
            with suppress(OSError):
                client.send(b"x")


def status_line(client: socket.socket) -> bytes:
    """What the server answers in the end; nothing if it just hangs up."""
    client.settimeout(60)
    with suppress(ConnectionError):
        return client.recv(1000).split(b"\r\n")[0]
    return b""


def first_answer(clients: Sequence[socket.socket]) -> bytes:
    """The status line of whichever client is answered first."""
    with selectors.DefaultSelector() as waiting:
        for client in clients:
            waiting.register(client, selectors.EVENT_READ, client)
        answered = waiting.select(60)
    return status_line(answered[0][0].data) if answered else b""
