"""Several knowledge bases behind one endpoint, on the real Serve."""

import httpx

from deeped_ray.serving.config import AppArgs, config_for_several
from deeped_ray.serving.local import local_config
from tests.serving.conftest import USUAL, Served, wait_until

TEXT = {"text": "Montreal met Toronto on the ice.", "spans": [[0, 8]], "top": 0, "explain": False}


def test_each_knowledge_base_answers_below_its_own_path(served: Served) -> None:
    usual = local_config(served.port, {"kb": str(served.kb)}, **USUAL)
    models = {"de": AppArgs(kb=str(served.kb), model="prior")}
    several = config_for_several(models, **{**USUAL, "autoscaling_config": {"min_replicas": 1, "max_replicas": 1}})
    served.serve.put(
        {**usual, "applications": [*usual["applications"], *several.model_dump(mode="json")["applications"]]}
    )
    try:
        with httpx.Client(base_url=served.url, timeout=60, trust_env=False) as client:
            for name in models:
                wait_until(lambda name=name: client.get(f"/{name}/healthz").status_code == 200, name)  # type: ignore[misc]
            replies = {name: client.post(f"{name}/link", json=TEXT).json() for name in ("", "/de")}
            found = {
                name: (reply["version"]["model"], reply["mentions"][0]["surface"]) for name, reply in replies.items()
            }
            assert found == {"": ("global", "Montreal"), "/de": ("prior", "Montreal")}
            assert client.get("/de/entities/Q340").json()["title"] == "Montreal"
            assert client.get("/de/").text == client.get("/").text
            assert client.get("/fr/link").status_code == 404
    finally:
        served.serve.put(usual)
        wait_until(lambda: set(served.serve.applications()) == {"linker"}, "the others are gone")
