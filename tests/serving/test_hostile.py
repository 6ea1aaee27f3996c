"""Requests that were made to be expensive, on a real Serve."""

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

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
    with ThreadPoolExecutor(3) as threads:
        long = in_flight(served_client, threads, LONG, LONG, LONG)
        time.sleep(0.3)  # whether they have begun or not, the short ones come after them
        for _ in range(3):
            assert served_client.post("/link", json=SHORT).status_code == 200
        assert not all(future.done() for future in long)
        assert [future.result().status_code for future in long] == [200] * 3


def test_more_work_than_one_request_may_ask_for_is_refused_before_it_is_done(served_client: httpx.Client) -> None:
    names = ", ".join(f"Zorblatt{i:04} {'z' * 70} Quimby{i:04}" for i in range(9_990))  # all but the most of both
    starts = [place for place in range(len(names)) if names.startswith("Zorblatt", place)]
    spans = [[start, start + 10] for start in starts]
    reply = served_client.post("/link", json={"text": names, "spans": spans})
    assert reply.status_code == 413
    assert "s of work; the limit is 10.5 s. Send it in several requests." in reply.json()["detail"]
