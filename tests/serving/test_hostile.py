"""Requests that were made to be expensive, on a real Serve."""

import gzip
import json
import os
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.serving.conftest import Served, wait_until

SHORT = {"text": "Montreal met Toronto in the Stanley Cup."}
LONG = {"text": "Montreal met Toronto in the Stanley Cup. " * 1_000, "explain": False}
MARKS = {"text": "a" + "\u0300\u0316" * 499_999}
VOWELS = {"text": "a" + "\u0f73\u0f75" * 100_000}


def in_flight(client: httpx.Client, threads: ThreadPoolExecutor, *bodies: object) -> list["Future[httpx.Response]"]:
    return [threads.submit(client.post, "/link", content=json.dumps(body)) for body in bodies]


def test_text_that_takes_quadratic_time_to_normalise_stops_nobody(served_client: httpx.Client) -> None:
    with ThreadPoolExecutor(2) as threads:
        hostile = in_flight(served_client, threads, MARKS, VOWELS)
        assert served_client.post("/link", json=SHORT).status_code == 200
        assert served_client.get("/healthz").status_code == 200
        assert [future.result().status_code for future in hostile] == [200] * 2


def test_short_requests_overtake_long_ones(served_client: httpx.Client) -> None:
    def do_overtake() -> bool:
        with ThreadPoolExecutor(3) as threads:
            long = in_flight(served_client, threads, LONG, LONG, LONG)
            time.sleep(0.3)  # whether they have begun or not, the short ones come after them
            for _ in range(3):
                assert served_client.post("/link", json=SHORT).status_code == 200
            are_first = not all(future.done() for future in long)
            assert [future.result().status_code for future in long] == [200] * 3
        return are_first

    # in the order of their coming they never would; on a busy machine this client may be the one that is late
    wait_until(do_overtake, "short requests are answered before long ones")


def test_replicas_have_the_priority_of_their_server(served: Served) -> None:
    served.wait_for_replicas(1)
    priorities = {os.getpriority(os.PRIO_PROCESS, pid) for pid in served.ready()}
    assert priorities == {os.getpriority(os.PRIO_PROCESS, 0)}


def conversation(port: int, sent: bytes) -> bytes:
    """All that the server answers before it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(65536), b""))


def http(body: bytes, *headers: bytes, path: bytes = b"/link", method: bytes = b"POST") -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: a", b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"", body])


CHUNKED, GZIP = b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"
BOMB = gzip.compress(b'{"text":"' + b"a" * 20_000_000 + b'"}')
ODD = {
    "two lengths": (400, http(b"{}", b"Content-Length: 2", b"Content-Length: 20")),
    "a negative length": (400, http(b"{}", b"Content-Length: -2")),
    "an encoding nobody knows": (400, http(b"0\r\n\r\n", b"Transfer-Encoding: xchunked")),
    "a chunk without a size": (400, http(b"ZZ\r\n{}\r\n0\r\n\r\n", CHUNKED)),
    "a chunk of 16 exabytes": (400, http(b"FFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n", CHUNKED)),
    "a length beside chunks": (422, http(b"2\r\n{}\r\n0\r\n\r\n", b"Content-Length: 20", CHUNKED)),
    "two hosts": (400, http(b"", b"Host: b", method=b"GET")),
    "a zero in a header": (400, http(b"", b"X: a\x00b", method=b"GET")),
    "200 headers": (400, http(b"", *(b"X%d: a" % i for i in range(200)), method=b"GET")),
    "a compressed bomb": (422, http(BOMB, GZIP, b"Content-Length: %d" % len(BOMB))),
    "lists in lists": (422, http(b"[" * 90_000, b"Content-Length: 90000")),
    "a number of 90,000 digits": (422, http(b'{"text":%s}' % (b"9" * 90_000), b"Content-Length: 90009")),
    "a long name": (413, http(b"", path=b"/entities/" + b"a" * 20_000, method=b"GET")),
    "a long URL": (414, http(b"", path=b"/entities/" + b"a" * 90_000, method=b"GET")),
    "a long method": (400, http(b"", method=b"F" * 300)),
    "a name that is no text": (404, http(b"", path=b"/entities/%ff%00%zz", method=b"GET")),
    "a path that climbs": (404, http(b"", path=b"/page/%2e%2e/%2e%2e/api.py", method=b"GET")),
    "another method": (405, http(b"", method=b"DELETE")),
    "a socket": (403, http(b"", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13",
                           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", method=b"GET")),
}  # fmt: skip
IN_HTML = {400}
"""What HAProxy cannot read it refuses in HTML, from its own code, which no setting of 2.8 reaches."""


@pytest.mark.parametrize("kind", ODD)
def test_odd_requests_are_refused(served: Served, kind: str) -> None:
    status, sent = ODD[kind]
    reply = conversation(served.port, sent)
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert reply.count(b"HTTP/1.1 ") == 1
    assert b'{"detail"' in reply or (status in IN_HTML and b"text/html" in reply)


def test_requests_in_a_pipeline_are_answered_one_by_one(served: Served) -> None:
    body = json.dumps(SHORT | {"explain": False}).encode()
    one = http(body, b"Content-Length: %d" % len(body))
    pipeline = one.replace(b"Connection: close\r\n", b"") * 99 + one
    # a HAProxy that hands over to its successor hangs up after an answer, as clients of pipelines have to expect
    wait_until(lambda: conversation(served.port, pipeline).count(b"HTTP/1.1 200 OK") == 100, "100 answers")


MILLION = 1_000_000
TEXTS = {
    "one word": "X" * MILLION,
    "initials": "A.B.C." * (MILLION // 6),
    "capitals": "MONTREAL MET TORONTO ON ICE WHERE PUCKS AND GOALS ARE LOST TO COLD " * 150,
    "Thai": "ประเทศไทยมีกรุงเทพมหานคร" * 40_000,
    "Japanese": "東京都は日本の首都でありモントリオール" * 50_000,
    "Khmer": "ភ្នំពេញជារាជធានី" * 60_000,
    "nothing to see": "M\u200bo\u200dn\u200ct" * (MILLION // 7),
    "letters that grow": "\ufdfa\u0390ß\u0130" * (MILLION // 4),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_a_million_characters_stop_nobody(served_client: httpx.Client, kind: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        (hostile,) = in_flight(served_client, threads, {"text": TEXTS[kind], "explain": False, "top": 0})
        assert served_client.post("/link", json=SHORT).status_code == 200
        assert served_client.get("/healthz").status_code == 200
        assert hostile.result().status_code in (200, 413)  # 413: more than 10,000 mentions are found
