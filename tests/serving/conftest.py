"""The service on a real Ray Serve behind HAProxy, with two replicas, started as `make serve` starts it."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request

import httpx
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.local_ray import LocalRay, free_ports, local_ray, open_url
from deeped_ray.serving.local import deploy

TWO_REPLICAS: dict[str, Any] = {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}}


@dataclass(frozen=True)
class Served:
    url: str
    port: int
    ray: LocalRay

    def wait_for_replicas(self, number: int, *, without: int = -1) -> None:
        """Until so many run and are known to the proxy."""
        deadline = time.monotonic() + 90
        while len(self.ready() - {without}) < number:
            assert time.monotonic() < deadline, f"{self.ready()} are ready"
            time.sleep(0.2)

    def ready(self) -> set[int]:
        """Process ids of replicas that are running, as Serve sees it."""
        token = Path(self.ray.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
        request = Request(
            f"{self.ray.dashboard_url}/api/serve/applications/", headers={"Authorization": f"Bearer {token}"}
        )
        with open_url(request, timeout_s=10.0) as reply:
            deployments = json.load(reply)["applications"]["linker"]["deployments"].values()
        replicas = [replica for deployment in deployments for replica in deployment["replicas"]]
        return {replica["pid"] for replica in replicas if replica["state"] == "RUNNING"}


@pytest.fixture(scope="session")
def served(mini_kb: KnowledgeBase) -> Iterator[Served]:
    port = free_ports(1)[0]
    with local_ray(num_cpus=4) as ray:
        served = Served(deploy(ray, mini_kb.root, port=port, **TWO_REPLICAS), port, ray)
        served.wait_for_replicas(2)
        yield served


@pytest.fixture(scope="session")
def served_url(served: Served) -> str:
    return served.url


@pytest.fixture(scope="session")
def client(served_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served_url, timeout=60, trust_env=False) as client:
        yield client
