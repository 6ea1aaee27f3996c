"""Entities added to a real Serve under load: by every replica, after a kill, without a failed request."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.local_ray import living
from tests.conftest import copy_of
from tests.serving.conftest import Served, wait_until
from tests.serving.test_faults import TOKEN, Load

TWO = {"min_replicas": 2, "max_replicas": 2}
LETTER = {"text": "The blades of my Falcon are dull.", "explain": False}
FALCON = {"title": "Norrby Falcon", "aliases": ["Falcon"], "description": "Skates with blades of steel for the ice."}
READERS_TOKEN = "abcdef0123456789-token"
IN_A_ROW = 20
"""Answers that come from both replicas, if two run."""


@pytest.fixture(scope="module")
def two_replicas(
    served: Served, mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """Two replicas that take changes, on a knowledge base of their own."""
    folder: Path = tmp_path_factory.mktemp("live")
    (folder / "token").write_text(TOKEN)
    (folder / "readers").write_text(READERS_TOKEN)
    args = {
        "kb": str(copy_of(mini_kb, folder / "kb").root),
        "token_file": str(folder / "readers"),
        "writers_token_file": str(folder / "token"),
    }
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        served.changed(args, autoscaling_config=TWO),
        httpx.Client(base_url=served.url, timeout=60, trust_env=False, headers=headers) as client,
    ):
        # the old ones take no changes
        wait_until(lambda: all(put(client, "P0") == 200 for _ in range(IN_A_ROW)), "all replicas take changes")
        served.wait_for_replicas(2)
        yield client


def put(client: httpx.Client, name: str) -> int:
    return client.put(f"/entities/{name}", json={"title": f"Norrby {name}"}).status_code


def entity_of(client: httpx.Client) -> str | None:
    mentions = client.post("/link", json=LETTER).raise_for_status().json()["mentions"]
    return next((each["entity"]["title"] for each in mentions if each["surface"] == "Falcon"), None)


def answers(client: httpx.Client) -> list[str | None]:
    return [entity_of(client) for _ in range(IN_A_ROW)]


def test_readers_need_their_token_and_may_not_write(served: Served, two_replicas: httpx.Client) -> None:
    def status(method: str, path: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return two_replicas.request(method, path, json=LETTER, headers=headers).status_code

    asked = [status("POST", "/link", token) for token in ("another", READERS_TOKEN, TOKEN)]
    assert asked == [401, 200, 200]
    assert status("PUT", "/entities/P6", READERS_TOKEN) == 403


def test_every_replica_links_an_entity_within_five_seconds_and_no_request_fails(
    served: Served, two_replicas: httpx.Client
) -> None:
    with Load.on(served.url, clients=2) as load:
        load.wait_for(50)
        start = time.monotonic()
        assert answers(two_replicas) == [None] * IN_A_ROW
        usual_s = time.monotonic() - start
        two_replicas.put("/entities/P7", json=FALCON).raise_for_status()
        added = time.monotonic()
        wait_until(lambda: answers(two_replicas) == ["Norrby Falcon"] * IN_A_ROW, "all replicas know the entity")
        assert time.monotonic() - added < 5 + 2 * usual_s
        load.wait_for(50)
    assert load.failures == []


def test_no_acknowledged_change_is_lost_with_a_killed_replica(served: Served, two_replicas: httpx.Client) -> None:
    two_replicas.put("/entities/P7", json=FALCON).raise_for_status()
    victim, killed, acknowledged = min(served.ready()), False, list[str]()
    for number in range(30):
        if number == 10:
            os.kill(victim, signal.SIGKILL)
            killed = True
        try:
            is_done = put(two_replicas, f"K{number}") == 200
        except httpx.TransportError:
            is_done = False
        assert is_done or killed, "before the kill every change is taken"
        acknowledged += [f"K{number}"] if is_done else []
    wait_until(lambda: not living([victim]), "the replica is gone")
    served.wait_for_replicas(2, without=victim)
    assert len(acknowledged) > 20
    for name in acknowledged:
        assert two_replicas.get(f"/entities/{name}").status_code == 200
    wait_until(lambda: answers(two_replicas) == ["Norrby Falcon"] * IN_A_ROW, "the new replica knows the entity too")
    versions = {two_replicas.get("/version").json()["changes"] for _ in range(IN_A_ROW)}
    assert len(versions) == 1
