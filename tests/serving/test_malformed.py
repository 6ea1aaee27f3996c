"""Bodies that are almost right, and bodies that are not."""

import json
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.serving.test_api import NIF

NUM_MALFORMED = 1000


def malformed(examples: list[Any]) -> SearchStrategy[bytes]:
    """Bodies that are almost right, JSON of any other shape, and no JSON at all."""
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    )
    broken = st.sampled_from(examples).flatmap(
        lambda example: st.sampled_from(sorted(example)).flatmap(lambda key: values.map(lambda v: {**example, key: v}))
    )
    turtle = st.tuples(st.integers(0, len(NIF)), st.binary(max_size=6)).map(
        lambda change: NIF[: change[0]].encode() + change[1] + NIF[change[0] + 1 :].encode()
    )
    shaped = st.one_of(broken, values, st.lists(broken, max_size=3)).map(json.dumps).map(str.encode)
    cut = st.sampled_from([json.dumps(example).encode() for example in examples]).flatmap(
        lambda body: st.tuples(st.integers(0, len(body)), st.binary(max_size=6)).map(
            lambda change: body[: change[0]] + change[1] + body[change[0] + 1 :]
        )
    )
    return st.one_of(shaped, cut, turtle, st.binary(max_size=200))


def test_a_thousand_malformed_bodies_give_no_server_error(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    routes = [path for path, methods in described["paths"].items() if "post" in methods]
    schemas = described["components"]["schemas"].values()
    examples = [example for schema in schemas for example in schema.get("examples", [])]
    statuses = []

    @settings(max_examples=NUM_MALFORMED)
    @given(malformed(examples), st.sampled_from(routes))
    def send(body: bytes, route: str) -> None:
        reply = client.post(route, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code < 500, reply.text
        assert "Traceback" not in reply.text
        statuses.append(reply.status_code)

    send()
    assert len(statuses) >= NUM_MALFORMED
    assert statuses.count(422) > NUM_MALFORMED / 2
    assert client.get("/healthz").status_code == 200
