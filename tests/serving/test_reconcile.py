"""The Reconciliation Service API 0.2: every answer against the schema of its kind, and what OpenRefine asks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from deeped_ray.serving.api import create_api
from deeped_ray.serving.doors.reconcile.rows import RowQuery, row_text
from deeped_ray.serving.service import LinkingService
from tests.serving.conftest import InProcess

HERE = Path(__file__).parent
SCHEMAS = json.loads((HERE / "reconciliation-0.2.json").read_text())


def check(data: Any, kind: str) -> Any:
    """The data, which must be as the schema of this kind demands."""
    Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{kind}"}).validate(data)
    return data


def reconcile(client: httpx.Client, **queries: Any) -> dict[str, list[dict[str, Any]]]:
    reply = client.post("/reconcile", data={"queries": json.dumps(check(queries, "queries"))})
    assert reply.status_code == 200, reply.text
    return {key: each["result"] for key, each in check(reply.json(), "results").items()}


def row(query: str, *values: Any, **options: Any) -> dict[str, Any]:
    return {"query": query, "properties": [{"pid": "context", "v": value} for value in values], **options}


def openrefine() -> Iterator[Any]:
    """The kind of the answer, and the request."""
    text = (HERE / "openrefine.http").read_text()
    for kind, block in re.findall(r"^### (\w+).*\n((?:(?!###).*\n?)*)", text, re.MULTILINE):
        head, _, body = block.partition("\n\n")
        first, *headers = head.splitlines()
        method, address = first.split()
        yield pytest.param(kind, method, address, dict(each.split(": ") for each in headers), body.strip(), id=first)


@pytest.mark.parametrize(("kind", "method", "address", "headers", "body"), [*openrefine()])
def test_what_openrefine_asks_is_answered(
    served_client: httpx.Client, kind: str, method: str, address: str, headers: dict[str, str], body: str
) -> None:
    reply = served_client.request(method, address, headers=headers, content=body or None)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "*"
    if kind == "html":
        assert "<h1>Montreal Canadiens</h1>" in reply.text
    else:
        assert check(reply.json(), kind)


def test_addresses_of_the_manifest_lead_somewhere(served_client: httpx.Client) -> None:
    manifest = check(served_client.get("/reconcile").json(), "manifest")
    services = [*manifest["suggest"].values(), manifest["extend"]["propose_properties"]]
    addresses = [each["service_url"] + each["service_path"] for each in services]
    addresses += [manifest[name]["url"].replace("{{id}}", "Montreal") for name in ("view", "preview")]
    assert [served_client.get(address).status_code for address in addresses] == 6 * [200]


def test_other_columns_decide_what_a_name_means(client: httpx.Client) -> None:
    found = reconcile(
        client, alone=row("Montreal"), team=row("Montreal", "Boston Bruins", "Toronto Maple Leafs", "ice")
    )
    assert found["alone"][0]["id"] == "Montreal"
    assert found["team"][0]["id"] == "Montreal Canadiens"


def test_candidates_have_scores_in_order_and_parts(client: httpx.Client) -> None:
    (found,) = reconcile(client, q0=row("Apple", "iPhone")).values()
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)
    assert {part["id"] for part in found[0]["features"]} == {"prior", "local", "coherence"}


def test_only_what_is_likely_matches_by_itself(client: httpx.Client) -> None:
    found = reconcile(client, sure=row("Q340"), doubtful=row("Montreal"), unknown=row("Zorblatt"))
    assert [(each["id"], each["match"]) for each in found["sure"]] == [("Montreal", True)]
    assert not any(each["match"] for each in found["doubtful"])
    assert found["unknown"] == []


def test_persons_can_be_asked_for(client: httpx.Client) -> None:
    found = reconcile(client, all=row("Lincoln"), persons=row("Lincoln", type="person", type_strict="should"))
    is_person = [{"id": "person", "name": "Person"} in each["type"] for each in found["all"]]
    assert any(is_person)
    assert not all(is_person)
    assert [each["id"] for each in found["persons"]] == [
        each["id"] for each, wanted in zip(found["all"], is_person, strict=True) if wanted
    ]


def test_a_row_without_a_name_gets_what_is_near(client: httpx.Client) -> None:
    (found,) = reconcile(
        client, q0={"properties": [{"pid": "context", "v": "a goalkeeper on the ice"}], "limit": 2}
    ).values()
    assert len(found) == 2
    assert not any(each["match"] for each in found)


def test_values_that_look_like_names_are_mentions() -> None:
    asked = RowQuery.model_validate(row("Paris", ["Texas", 1844], {"id": "Q1", "name": "Lamar"}, "a town", None, " "))
    text, spans = row_text(asked)
    assert text == "Paris, Texas, 1844, Lamar, a town"
    assert [text[start:end] for start, end in spans] == ["Paris", "Texas", "Lamar"]


def test_suggestions_begin_with_who_bears_the_name(client: httpx.Client) -> None:
    def suggested(prefix: str, **more: Any) -> list[str]:
        reply = client.get("/reconcile/suggest/entity", params={"prefix": prefix, **more})
        return [each["id"] for each in check(reply.json(), "suggestions")["result"]]

    assert suggested("Q340") == ["Montreal"]
    assert suggested("Mont")[0] == "Montreal"
    assert suggested("Mont", cursor=1) == suggested("Mont")[1:]
    assert "Montreal Canadiens" in suggested("Montreal Canadeins")
    assert suggested("") == []


def test_older_clients_get_the_call_of_a_function(client: httpx.Client) -> None:
    reply = client.get("/reconcile", params={"callback": "jQuery1_2", "queries": '{"q0": {"query": "Boston"}}'})
    assert reply.headers["content-type"].startswith("text/javascript")
    assert check(json.loads(reply.text.removeprefix("/**/jQuery1_2(").removesuffix(");")), "results")
    assert client.get("/reconcile", params={"callback": "alert(1)"}).status_code == 422


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"queries": "[]"}, 422, "should be an object"),
        ({"queries": "{"}, 422, "JSON"),
        ({"queries": '{"q0": {"query": ""}}'}, 422, "needs a `query`"),
        ({"queries": '{"q0": {"query": "a", "limit": 0}}'}, 422, "greater than or equal to 1"),
        ({"queries": json.dumps({str(i): {"query": "a"} for i in range(101)})}, 413, "101 queries; the limit is 100"),
        ({"queries": '{"q0": {"query": "' + "a" * 501 + '"}}'}, 413, "at most 500"),
        ({"extend": '{"ids": ["Montreal"], "properties": [{"id": "mayor"}]}'}, 422, "No property 'mayor'"),
        ({"queries": "a" * 1_000_000}, 413, "the limit is 1,000,000"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_batch_is_told_what_is_wrong(
    client: httpx.Client, fields: dict[str, str], status: int, problem: str
) -> None:
    reply = client.post("/reconcile", data=fields)
    assert reply.status_code == status
    assert problem in reply.text


def test_a_card_has_no_markup_of_others(client: httpx.Client) -> None:
    reply = client.get("/reconcile/preview", params={"id": "<script>"})
    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/json"


def test_with_a_token_only_the_manifest_is_open(service: LinkingService) -> None:
    with httpx.Client(transport=InProcess(create_api(service, token="t" * 16)), base_url="http://test") as client:
        assert check(client.get("/reconcile").json(), "manifest")
        assert client.get("/reconcile?queries={}").status_code == 401
        assert client.post("/reconcile", data={"queries": "{}"}).status_code == 401
