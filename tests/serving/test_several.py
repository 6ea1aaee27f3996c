"""Several knowledge bases behind one endpoint, on the real Serve, each with settings of its own."""

from collections.abc import Iterator

import httpx
import pytest

from deeped_ray.serving.config import AppArgs, config_for_several
from tests.serving.conftest import USUAL, Served, wait_until

TEXT = {"text": "Montreal met Toronto on the ice.", "spans": [[0, 8]], "top": 0, "explain": False}


@pytest.fixture(scope="module")
def both(served: Served) -> Iterator[httpx.Client]:
    """Beside what is served as usual, the local model at /de, which takes little work."""
    usual = served.serve.config()
    other = {"de": AppArgs(kb=str(served.kb), model="local", max_work_s=0.5)}
    several = config_for_several(other, **USUAL)
    served.serve.put(
        {**usual, "applications": [*usual["applications"], *several.model_dump(mode="json")["applications"]]}
    )
    try:
        with httpx.Client(base_url=served.url, timeout=60, trust_env=False) as client:
            wait_until(lambda: client.get("/de/healthz").status_code == 200, "the second one is ready")
            yield client
    finally:
        served.serve.put(usual)
        wait_until(lambda: set(served.serve.applications()) == {"linker"}, "the second one is gone")


def test_each_knowledge_base_answers_below_its_own_path(both: httpx.Client) -> None:
    replies = {name: both.post(f"{name}/link", json=TEXT).json() for name in ("", "/de")}
    found = {name: (reply["version"]["model"], reply["mentions"][0]["surface"]) for name, reply in replies.items()}
    assert found == {"": ("global", "Montreal"), "/de": ("local", "Montreal")}
    assert both.get("/de/entities/Q340").json()["title"] == "Montreal"
    assert both.get("/de/").text == both.get("/").text
    assert both.get("/fr/link").status_code == 404


def test_more_work_than_one_request_may_ask_for_is_refused_before_it_is_done(both: httpx.Client) -> None:
    names = ", ".join(f"Zorblatt{i:04} Quimby{i:04}" for i in range(9_990))
    body = {"text": names, "spans": [[25 * i, 25 * i + 23] for i in range(9_990)], "explain": False, "top": 0}
    assert both.post("/link", json=body).status_code == 200
    refused = both.post("/de/link", json=body)
    assert refused.status_code == 413
    assert "s of work; the limit is 0.5 s. Send it in several requests." in refused.json()["detail"]
    assert refused.elapsed.total_seconds() < 30  # on a busy machine; 0.2 s of work
