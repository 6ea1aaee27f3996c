"""The Serve app on a real Ray Serve."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from ray import serve

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.local_ray import free_ports
from serve.app import AppArgs, build

TEXT = "Scotland beat Australia at Murrayfield in the rugby test."


@pytest.fixture(scope="module")
def client(mini_kb: KnowledgeBase) -> Iterator[httpx.Client]:
    port = free_ports(1)[0]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build(AppArgs(kb=str(mini_kb.root))), name="linker", route_prefix="/")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        yield client
    serve.shutdown()


def link(client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    return client.post("/link", json=body)


def test_health_says_what_is_served(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "model": "global", "entities": 226}


def test_answers_are_those_of_the_linker(client: httpx.Client, linker: Linker) -> None:
    spans = [(0, 8), (14, 23), (27, 38)]
    served = link(client, {"text": TEXT, "spans": spans}).json()["mentions"]
    for answer, expected in zip(served, linker.link(TEXT, spans), strict=True):
        assert expected.best is not None
        assert answer["entity"]["title"] == expected.best.title
        assert answer["entity"]["score"] == pytest.approx(expected.best.score, abs=1e-5)
        assert [word["word"] for word in answer["attended"]] == [word for word, _ in expected.attended]


def test_top_limits_the_candidates(client: httpx.Client) -> None:
    (answer,) = link(client, {"text": TEXT, "spans": [[0, 8]], "top": 1}).json()["mentions"]
    assert len(answer["candidates"]) == 1


def test_an_unknown_name_and_an_empty_document_get_marked_answers(client: httpx.Client) -> None:
    (answer,) = link(client, {"text": "Zorblatt", "spans": [[0, 8]]}).json()["mentions"]
    assert answer["entity"] is None
    assert answer["reason"] == "no entity is known by this name"
    assert link(client, {"text": "", "spans": []}).json() == {"mentions": []}


@pytest.mark.parametrize(
    "body",
    [
        {"text": TEXT, "spans": [[0, 999]]},
        {"text": TEXT, "spans": [[0, 8], [4, 12]]},
        {"text": TEXT, "spans": [[8, 0]]},
        {"text": TEXT, "spans": [[-1, 3]]},
        {"text": TEXT, "spans": "0:8"},
        {"text": TEXT},
        {"spans": []},
        {"text": TEXT, "spans": [], "unknown": 1},
    ],
)
def test_bad_requests_get_422_with_a_reason(client: httpx.Client, body: dict[str, Any]) -> None:
    reply = link(client, body)
    assert reply.status_code in (400, 422)
    assert reply.json()["detail"]
    assert "Traceback" not in reply.text


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"text": "\\ud83d Apple", "spans": []}',
        b'{"text": "a", "spans": [[NaN, 3]]}',
        b'{"text": "a", "spans": [[0, 1e400]]}',
        b"\xff",
    ],
)
def test_what_is_no_proper_json_is_refused(client: httpx.Client, content: bytes) -> None:
    reply = client.post("/link", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422)
    assert reply.json()["detail"]


def test_the_interface_describes_itself(client: httpx.Client) -> None:
    assert {"/link", "/healthz"} <= set(client.get("/openapi.json").json()["paths"])
