"""The routes; what depends on the server around them is asked of a real Ray Serve."""

import json
import re
from typing import Any

import httpx
import orjson
import pytest

from deeped_ray.cli import main
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import evaluate_linker
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.views import answer_of
from deeped_ray.types import Prediction
from tests.serving.conftest import Served, wait_until

TEXT = "Scotland beat Australia at Murrayfield in the rugby test."
HOCKEY = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."


def link(client: httpx.Client, body: Any) -> httpx.Response:
    return client.post("/link", json=body)


def same(answer: dict[str, Any], expected: Prediction) -> None:
    """To the last digit, though another process computed it, in another batch."""
    assert answer == orjson.loads(orjson.dumps(answer_of(expected)))


def test_server_linker_evaluation_and_command_line_give_the_same_answers(
    served_client: httpx.Client, linker: Linker, mini_kb: KnowledgeBase, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = read_dataset("mini:test")
    linked = linker.link_batch(documents)
    bodies = [{"text": d.text, "spans": [[m.start, m.end] for m in d.mentions], "top": 100} for d in documents]
    served = link(served_client, bodies).json()
    num_right = num_mentions = 0
    for document, reply, answers in zip(documents, served, linked, strict=True):
        for mention, answer, expected in zip(document.mentions, reply["mentions"], answers, strict=True):
            same(answer, expected)
            num_mentions += 1
            num_right += answer["candidates"][0]["title"] == mention.gold
    report = evaluate_linker(linker, documents, dataset="mini:test", model="global")
    assert report.result.scores.accuracy == pytest.approx(num_right / num_mentions)
    assert main(["link", "--kb", str(mini_kb.root), "--json", HOCKEY]) == 0
    for answer, expected in zip(json.loads(capsys.readouterr().out), linker.link(HOCKEY), strict=True):
        same(answer, expected)
    found = link(served_client, {"text": HOCKEY, "top": 100}).json()["mentions"]
    for answer, expected in zip(found, linker.link(HOCKEY), strict=True):
        same(answer, expected)


def test_answers_explain_themselves_unless_told_not_to(client: httpx.Client, linker: Linker) -> None:
    (montreal, *_) = link(client, {"text": HOCKEY}).json()["mentions"]
    expected = linker.link(HOCKEY)[0]
    assert montreal["entity"]["url"] == "https://en.wikipedia.org/wiki/Montreal_Canadiens"
    assert [word["word"] for word in montreal["attended"]] == [word for word, _ in expected.attended]
    assert [each["mention"] for each in montreal["support"]] == [place for place, _ in expected.support]
    (plain, *_) = link(client, {"text": HOCKEY, "explain": False}).json()["mentions"]
    assert (plain["attended"], plain["support"], plain["entity"]["title"]) == ([], [], "Montreal Canadiens")


def test_top_limits_the_candidates_and_a_threshold_the_answers(client: httpx.Client) -> None:
    body = {"text": TEXT, "spans": [[0, 8]], "top": 1, "threshold": 0.99999}
    (answer,) = link(client, body).json()["mentions"]
    assert len(answer["candidates"]) == 1
    assert answer["entity"] is None
    assert "below the threshold" in answer["reason"]


def test_a_request_says_which_mentions_to_find(client: httpx.Client, linker: Linker) -> None:
    for kind in ("names", "all"):
        found = link(client, {"text": HOCKEY, "mentions": kind}).json()["mentions"]
        spans = linker.detector.spans(HOCKEY, mentions=kind)
        assert [(each["start"], each["end"]) for each in found] == spans
    assert link(client, {"text": HOCKEY, "mentions": "some"}).status_code == 422


def test_a_list_of_documents_gets_a_list_of_answers(client: httpx.Client) -> None:
    replies = link(client, [{"text": HOCKEY}, {"text": ""}, {"text": "Nothing here.", "spans": []}]).json()
    assert [len(reply["mentions"]) for reply in replies] == [5, 0, 0]
    assert link(client, []).json() == []


def test_an_unknown_name_gets_a_reason(client: httpx.Client) -> None:
    (answer,) = link(client, {"text": "Zorblatt", "spans": [[0, 8]]}).json()["mentions"]
    assert answer["entity"] is None
    assert answer["reason"] == "no entity is known by this name, or by one that resembles it"


def test_every_reply_tells_the_version(client: httpx.Client, mini_kb: KnowledgeBase) -> None:
    version = client.get("/version").json()
    assert (version["model"], version["linker"]) == ("global", mini_kb.open("linker").id)
    assert version["knowledge_base"] == mini_kb.open("corpus").id
    assert link(client, {"text": TEXT}).json()["version"] == version
    header = " ".join(f"{name}={value}" for name, value in version.items())
    for reply in (client.get("/healthz"), client.post("/link", content=b"{"), client.get("/nowhere")):
        assert reply.headers["Deeped-Version"] == header


def test_what_stands_in_while_no_replica_is_known_is_the_services_own(
    served_client: httpx.Client, served: Served
) -> None:
    port = served.ray.environment["RAY_SERVE_FALLBACK_PROXY_HTTP_PORT"]
    assert port != "8500"  # by default all Rays of a host listen there, and any of them answers
    stand_in = httpx.get(f"http://127.0.0.1:{port}/version", trust_env=False, timeout=60)
    assert stand_in.json() == served_client.get("/version").json()


def test_health_and_readiness_link_a_known_sentence(client: httpx.Client) -> None:
    for route in ("/healthz", "/readyz"):
        reply = client.get(route).json()
        assert (reply["status"], reply["entities"]) == ("ok", 226)


def test_rel_clients_work_unchanged(client: httpx.Client) -> None:
    given = client.post("/", json={"text": HOCKEY, "spans": [[0, 8], [13, 7]]}).json()
    assert [row[:4] for row in given] == [
        [0, 8, "Montreal", "Montreal_Canadiens"],
        [13, 7, "Toronto", "Toronto_Maple_Leafs"],
    ]
    found = client.post("/", json={"text": HOCKEY, "spans": []}).json()
    assert [row[2] for row in found] == ["Montreal", "Toronto", "Stanley Cup", "Boston", "National Hockey League"]
    assert all(0 < row[4] <= 1 for row in found)


NIF = """@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .
<http://example.org/d#char=0,40> a nif:Context ; nif:isString "Montreal met Toronto in the Stanley Cup." .
"""
PHRASE = """<http://example.org/d#char=0,8> a nif:Phrase ; nif:beginIndex 0 ; nif:endIndex 8 ; nif:anchorOf "Montreal" ;
    nif:referenceContext <http://example.org/d#char=0,40> .
"""


def test_gerbil_gets_nif_for_phrases_and_for_raw_text(client: httpx.Client) -> None:
    given = client.post("/nif", content=NIF + PHRASE, headers={"Content-Type": "application/x-turtle"})
    assert given.headers["Content-Type"].startswith("text/turtle")
    assert given.text.count("taIdentRef <") == 1
    found = client.post("/nif", content=NIF)
    assert found.text.count("taIdentRef <https://en.wikipedia.org/wiki/") == 3
    assert "taConfidence" not in found.text
    assert client.post("/nif?confidence=true", content=NIF).text.count("taConfidence") == 3
    apple = NIF.replace("Montreal met Toronto in the Stanley Cup.", "Apple Inc. makes computers and software.")
    apple += PHRASE.replace("Montreal", "Apple Inc.")
    apple = apple.replace("endIndex 8", "endIndex 10")
    by_id = client.post("/nif?identifier=wikidata", content=apple).text
    assert "taIdentRef <http://www.wikidata.org/entity/Q312>" in by_id
    assert client.post("/nif?identifier=dbpedia", content=NIF).status_code == 422
    refused = client.post("/nif", content="no turtle")
    assert refused.status_code == 422
    assert "Send Turtle in UTF-8" in refused.json()["detail"]


def test_entities_and_their_neighbours_are_looked_up(client: httpx.Client) -> None:
    entity = client.get("/entities/Apple Inc.").json()
    assert (entity["title"], entity["is_person"]) == ("Apple Inc.", False)
    near = client.get("/entities/Stanley%20Cup/neighbors", params={"count": 5}).json()
    assert near["entity"]["title"] == "Stanley Cup"
    assert "National Hockey League" in [each["title"] for each in near["neighbors"]]
    assert client.get("/entities/Q312").json() == entity
    assert client.get("/entities/Q340/neighbors").json()["entity"]["wikidata"] == "Q340"
    unknown = client.get("/entities/Montreal Canadeins")
    assert unknown.status_code == 404
    assert "Perhaps 'Montreal Canadiens'?" in unknown.json()["detail"]


def test_names_pairs_and_texts_are_looked_up(client: httpx.Client) -> None:
    name = client.get("/mentions/Apple").json()
    assert (name["rule"], name["candidates"][0]["title"]) == ("exact", "Apple Inc.")
    assert client.get("/mentions/Montreal Canadeins").json()["resembling"][0]["title"] == "Montreal Canadiens"
    pairs = [["Apple Inc.", "IPhone"], ["Apple Inc.", "Stanley Cup"]]
    related, unrelated = client.post("/relatedness", json={"pairs": pairs}).json()["similarities"]
    assert related > unrelated
    found = client.post("/search", json={"text": "a goalkeeper on the ice in hockey", "count": 3}).json()
    assert len(found["related"]) == 3
    assert client.post("/search", json={}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"text": TEXT, "spans": [[0, 999]]},
        {"text": TEXT, "spans": [[0, 8], [4, 12]]},
        {"text": TEXT, "spans": [[8, 0]]},
        {"text": TEXT, "spans": [[-1, 3]]},
        {"text": TEXT, "spans": "0:8"},
        {"text": TEXT, "spans": [[0, 4, 8]]},
        {"text": TEXT, "spans": [[False, True]]},
        {"text": TEXT, "spans": [["0", "8"]]},
        {"text": TEXT, "spans": [[0, 8.5]]},
        {"spans": []},
        {"text": TEXT, "spans": [], "unknown": 1},
        {"text": TEXT, "threshold": 2},
        [{"text": TEXT}, {"txt": TEXT}],
    ],
)
def test_bad_requests_get_422_with_a_reason(client: httpx.Client, body: Any) -> None:
    reply = link(client, body)
    assert reply.status_code == 422
    assert reply.json()["detail"]
    assert "Traceback" not in reply.text


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"text": "\\ud83d Apple", "spans": []}',
        b'{"text": "a", "spans": [[NaN, 3]]}',
        b'{"text": "a", "spans": [[0, 1e400]]}',
        b'{"text": "\xff\xfe"}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_proper_json_is_refused(client: httpx.Client, content: bytes) -> None:
    reply = client.post("/link", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422)
    assert reply.json()["detail"]


def test_control_characters_are_text_like_any_other(client: httpx.Client) -> None:
    text = "Montreal\x00 met\x07 Toronto\x1b[31m on\u202e the ice."
    answers = link(client, {"text": text}).json()["mentions"]
    assert [text[answer["start"] : answer["end"]] for answer in answers] == ["Montreal", "Toronto"]


def test_what_is_too_large_is_refused_with_413(served_client: httpx.Client) -> None:
    reply = link(served_client, {"text": "a" * 1_000_001})
    assert reply.status_code == 413
    assert "at most 1000000 characters" in reply.text
    too_large = served_client.post("/link", content=b" " * 9_000_000)
    assert too_large.status_code == 413
    assert "larger than 8,000,000 bytes" in too_large.json()["detail"]
    assert link(served_client, [{"text": ""}] * 257).status_code == 413


def test_a_text_of_as_many_mentions_as_allowed_is_linked(served_client: httpx.Client) -> None:
    text = (HOCKEY + " ") * 2000 + "." * 100_000
    answers = link(served_client, {"text": text, "explain": False, "top": 0}).json()["mentions"]
    assert len(answers) == 5 * 2000
    titles = {answer["entity"]["title"] for answer in answers[5000:5100] if answer["entity"]}
    assert titles >= {"Montreal Canadiens", "Boston Bruins"}


def test_the_interface_describes_itself_with_examples(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    assert {"/link", "/", "/nif", "/relatedness", "/search", "/metrics", "/readyz"} <= set(described["paths"])
    assert described["components"]["schemas"]["LinkRequest"]["examples"]


def test_metrics_of_all_replicas_are_there_for_prometheus(served_client: httpx.Client) -> None:
    link(served_client, {"text": HOCKEY})

    def are_counted() -> bool:  # Ray gathers them every few seconds
        text = served_client.get("/metrics").text
        names = ("requests", "request_seconds_bucket", "mentions", "batch_mentions_bucket")
        are_there = all(re.search(rf"^ray_deeped_{name}\w*{{", text, re.MULTILINE) for name in names)
        return are_there and bool(re.search(r'^ray_deeped_mentions\w*{.*answer="entity".*} [1-9]', text, re.MULTILINE))

    wait_until(are_counted, "/metrics has what the replicas counted")
