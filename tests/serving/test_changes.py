"""Entities that are added, changed and taken off while the server runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.service import LinkingService
from tests.conftest import copy_of
from tests.serving.conftest import InProcess

READER, WRITER = "0123456789abcdef-reader", "0123456789abcdef-writer"
FALCON = {"title": "Norrby Falcon", "aliases": ["Falcon"], "description": "Skates with blades of steel for the ice."}
REPORT = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
LETTER = "The blades of my Falcon are dull, and Montreal met Toronto."


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def kb(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return copy_of(mini_kb, tmp_path_factory.mktemp("changes") / "kb")


@pytest.fixture(scope="module")
def live(kb: KnowledgeBase) -> LinkingService:
    return LinkingService(AppArgs(kb=str(kb.root)))


@pytest.fixture(scope="module")
def routes(live: LinkingService) -> Iterator[httpx.Client]:
    api = create_api(live, token=READER, writers_token=WRITER)
    with httpx.Client(transport=InProcess(api), base_url="http://test", headers=as_(WRITER)) as client:
        yield client


@pytest.fixture
def client(routes: httpx.Client) -> Iterator[httpx.Client]:
    """Leaves no entity behind."""
    yield routes
    for each in routes.get("/entities").json()["changed"]:
        if each["title"] not in (None, "Montreal Canadiens"):
            routes.delete(f"/entities/{each['id']}").raise_for_status()


def linked(client: httpx.Client, text: str) -> dict[str, str | None]:
    mentions = client.post("/link", json={"text": text}).json()["mentions"]
    return {each["surface"]: each["entity"] and each["entity"]["title"] for each in mentions}


def mentions_of(client: httpx.Client, text: str) -> bytes:
    """As they stand in the reply, without the version."""
    return client.post("/link", json={"text": text}).content.partition(b'"version"')[0]


def priors_of(client: httpx.Client, name: str) -> dict[str, float]:
    return {each["title"]: each["prior"] for each in client.get(f"/mentions/{name}").json()["candidates"]}


def test_an_entity_that_is_put_is_found_and_linked_at_once(client: httpx.Client) -> None:
    assert "Falcon" not in linked(client, LETTER)
    before = client.get("/version").json()
    reply = client.put("/entities/P7", json={**FALCON, "url": "https://norrby.example/falcon"})
    assert reply.status_code == 200
    assert [(each["id"], each["title"]) for each in reply.json()["changed"]] == [("P7", "Norrby Falcon")]
    assert linked(client, LETTER)["Falcon"] == "Norrby Falcon"
    assert client.get("/entities/P7").json()["url"] == "https://norrby.example/falcon"
    assert client.get("/entities/Norrby Falcon/neighbors").json()["neighbors"]
    after = client.get("/version").json()
    assert after["changes"] != before["changes"]
    assert client.post("/link", json={"text": LETTER}).json()["version"] == after
    assert f"changes={after['changes']}" in client.get("/version").headers["Deeped-Version"]


def test_who_gives_more_than_is_kept_is_told(client: httpx.Client) -> None:
    many = {"title": "Norrby Many", "aliases": [f"Many{number}" for number in range(1500)]}
    reply = client.post("/entities", json=[{"title": "Norrby Few"}, many])
    assert reply.json()["shortened"] == ["Norrby Many"]


def test_documents_that_do_not_mention_it_get_the_same_bytes(client: httpx.Client) -> None:
    before = mentions_of(client, REPORT)
    client.put("/entities/P7", json=FALCON)
    assert mentions_of(client, REPORT) == before


def test_what_is_taken_off_leaves_the_answers_as_they_were(client: httpx.Client) -> None:
    before = mentions_of(client, LETTER)
    client.put("/entities/P7", json=FALCON)
    assert client.delete("/entities/Norrby Falcon").status_code == 200
    assert mentions_of(client, LETTER) == before
    assert client.get("/entities/P7").status_code == 404


def test_an_entity_of_the_parts_can_be_taken_off_and_put_back(client: httpx.Client) -> None:
    before = mentions_of(client, REPORT)
    assert linked(client, REPORT)["Montreal"] == "Montreal Canadiens"
    client.delete("/entities/Montreal Canadiens")
    assert linked(client, REPORT)["Montreal"] != "Montreal Canadiens"
    assert b"Montreal Canadiens" not in mentions_of(client, REPORT)
    assert client.get("/entities/Montreal Canadiens").status_code == 404
    client.put("/entities/Montreal Canadiens", json={})
    assert mentions_of(client, REPORT) == before


def neighbors_of(client: httpx.Client, name: str) -> list[str]:
    return [each["title"] for each in client.get(f"/entities/{name}/neighbors").json()["neighbors"]]


def test_a_new_description_of_an_entity_of_the_parts_counts_at_once(client: httpx.Client) -> None:
    before, answers = neighbors_of(client, "Montreal Canadiens"), mentions_of(client, REPORT)
    description = "Apple, pear and plum grow in the orchard; the fruit is picked from the tree. " * 400
    client.put("/entities/Montreal Canadiens", json={"description": description, "wikidata": "Q90000001"})
    after = neighbors_of(client, "Montreal Canadiens")
    assert ("Apple" in after[:3], "Apple" in before) == (True, False)
    assert linked(client, REPORT)["Montreal"] != "Montreal Canadiens"
    client.put("/entities/Montreal Canadiens", json={})
    assert neighbors_of(client, "Montreal Canadiens") == before
    assert mentions_of(client, REPORT) == answers


def test_an_alias_competes_with_a_frequent_name_by_its_count(client: httpx.Client) -> None:
    before = priors_of(client, "Montreal")
    count = sum(each["count"] for each in client.get("/mentions/Montreal").json()["candidates"])
    client.put("/entities/P1", json={"title": "Norrby Montreal", "aliases": ["Montreal"]})
    assert priors_of(client, "Montreal")["Norrby Montreal"] == pytest.approx(0.5 / (count + 0.5), abs=1e-3)
    client.put("/entities/P1", json={"title": "Norrby Montreal", "aliases": [{"name": "Montreal", "count": count}]})
    after = priors_of(client, "Montreal")
    assert after["Norrby Montreal"] == pytest.approx(0.5, abs=1e-3)
    assert after["Montreal Canadiens"] == pytest.approx(before["Montreal Canadiens"] / 2, abs=1e-3)


def test_of_two_changes_to_an_entity_the_later_holds(client: httpx.Client) -> None:
    client.put("/entities/P7", json=FALCON)
    client.put("/entities/P7", json={**FALCON, "aliases": ["Kestrel"]})
    assert "Falcon" not in linked(client, LETTER)
    assert linked(client, "The blades of my Kestrel are dull.")["Kestrel"] == "Norrby Falcon"


def test_many_are_put_at_once_or_none(client: httpx.Client) -> None:
    rows = [FALCON, {"title": "Norrby Glider", "aliases": ["Glider"]}]
    assert client.post("/entities", json=[*rows, {"aliases": ["nameless"]}]).status_code == 422
    assert client.get("/entities/Norrby Glider").status_code == 404
    assert len(client.post("/entities", json=rows).json()["changed"]) == 2
    assert client.get("/entities/Norrby Glider").status_code == 200


def test_changes_are_listed_from_a_number_on(client: httpx.Client) -> None:
    first = client.put("/entities/P7", json=FALCON).json()["changed"][0]["number"]
    client.put("/entities/P8", json={"title": "Norrby Glider", "wikidata": "Q88"})
    assert client.get("/entities/Q88").json()["title"] == "Norrby Glider"
    client.delete("/entities/P7")
    listed = client.get("/entities", params={"changed_since": first}).json()["changed"]
    assert [(each["id"], each["title"]) for each in listed] == [("P8", "Norrby Glider"), ("P7", None)]


def test_an_entity_named_like_a_stop_word_is_linked_only_where_a_span_says_so(client: httpx.Client) -> None:
    client.put("/entities/P9", json={"title": "The", "description": "A band from the north."})
    text = "The team of the north met The and the other."
    assert "The" not in linked(client, text)
    reply = client.post("/link", json={"text": text, "spans": [[26, 29]]}).json()["mentions"]
    assert reply[0]["entity"]["title"] == "The"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "expected an object"),
        ({"aliases": "Falcon"}, "expected a list"),
        ({"url": "javascript:alert(1)"}, "expected http://"),
    ],
)
def test_what_is_no_entity_is_refused_and_not_written(client: httpx.Client, values: Any, problem: str) -> None:
    version = client.get("/version").json()
    reply = client.put("/entities/P7", json=values)
    assert (reply.status_code, problem in reply.json()["detail"]) == (422, True)
    assert client.get("/version").json() == version


def test_a_description_of_ten_megabytes_is_refused_before_it_is_read(client: httpx.Client) -> None:
    version = client.get("/version").json()
    reply = client.put("/entities/P7", json={**FALCON, "description": "steel " * 1_700_000})
    assert reply.status_code == 413
    assert client.get("/version").json() == version


def test_an_id_alone_keeps_the_title_that_it_stands_for(client: httpx.Client) -> None:
    client.put("/entities/P7", json=FALCON)
    reply = client.put("/entities/P7", json={"description": "Skates of carbon."})
    assert [each["title"] for each in reply.json()["changed"]] == ["Norrby Falcon"]


def test_a_title_belongs_to_one_id(client: httpx.Client) -> None:
    client.put("/entities/P7", json=FALCON)
    reply = client.put("/entities/P8", json=FALCON)
    assert (reply.status_code, "belongs to 'P7'" in reply.json()["detail"]) == (422, True)


def test_nobody_takes_off_what_is_not_there(client: httpx.Client) -> None:
    assert client.delete("/entities/Nothing of this name").status_code == 404


def test_another_replica_sees_a_change_at_its_next_look(client: httpx.Client, kb: KnowledgeBase) -> None:
    other = LinkingService(AppArgs(kb=str(kb.root)))
    client.put("/entities/P7", json=FALCON)
    assert other.lookup.catalogue.find("P7") is None
    assert other.live.poll()
    assert other.lookup.catalogue.find("P7") is not None
    assert other.version == client.get("/version").json()


def test_a_restart_knows_all_changes(client: httpx.Client, kb: KnowledgeBase) -> None:
    client.put("/entities/P7", json=FALCON)
    again = LinkingService(AppArgs(kb=str(kb.root)))
    assert again.version == client.get("/version").json()
    assert again.lookup.entity("P7").title == "Norrby Falcon"


def test_while_the_storage_is_away_nothing_is_changed(client: httpx.Client, kb: KnowledgeBase) -> None:
    client.put("/entities/P7", json=FALCON)
    version, folder = client.get("/version").json(), kb.root / "changes"
    shutil.move(folder, kb.root / "aside")
    folder.write_text("in the way")
    try:
        reply = client.put("/entities/P8", json={"title": "Norrby Glider"})
    finally:
        folder.unlink()
        shutil.move(kb.root / "aside", folder)
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
    assert client.get("/version").json() == version
    assert client.get("/entities/P8").status_code == 404
    assert client.put("/entities/P8", json={"title": "Norrby Glider"}).status_code == 200


WRITES = [("PUT", "/entities/P7"), ("DELETE", "/entities/Montreal"), ("POST", "/entities")]


@pytest.mark.parametrize(("method", "url"), WRITES)
@pytest.mark.parametrize(
    ("token", "writers_token", "given", "status"),
    [
        (None, None, "", 403),
        (READER, None, READER, 403),
        (READER, WRITER, READER, 403),
        (READER, WRITER, "", 401),
        (None, WRITER, "", 401),
        (READER, WRITER, WRITER[:-1], 401),
    ],
)
def test_only_the_writers_token_writes(
    live: LinkingService, method: str, url: str, token: str | None, writers_token: str | None, given: str, status: int
) -> None:
    api = create_api(live, token=token, writers_token=writers_token)
    with httpx.Client(transport=InProcess(api), base_url="http://test") as client:
        reply = client.request(method, url, json=[FALCON], headers=as_(given) if given else {})
    assert reply.status_code == status
    assert live.lookup.catalogue.find("Norrby Falcon") is None


def test_whoever_may_write_may_read(client: httpx.Client) -> None:
    assert client.get("/entities").status_code == 200
    assert client.get("/entities", headers=as_(READER)).status_code == 200
    assert client.get("/entities", headers={"Authorization": ""}).status_code == 401


def test_paths_that_only_begin_alike_are_not_writable_routes(client: httpx.Client) -> None:
    assert client.post("/entitiesx", json=FALCON).status_code == 404


def test_nothing_of_this_was_left_in_the_parts(kb: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    assert kb.manifest() == mini_kb.manifest()
    assert {path.name for path in Path(kb.root).iterdir()} - {path.name for path in mini_kb.root.iterdir()} <= {
        "changes"
    }
