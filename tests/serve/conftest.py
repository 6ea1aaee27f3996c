"""The service on a real Ray Serve behind HAProxy, with two replicas, started as `make serve` starts it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.demo import serving
from deeped_ray.local_ray import LocalRay, descendants, free_ports, local_ray

TWO_REPLICAS = {"num_replicas": 2, "autoscaling_config": None}


@dataclass(frozen=True)
class Served:
    url: str
    port: int
    ray: LocalRay

    def replicas(self) -> set[int]:
        """Process ids."""
        found = set()
        for pid in descendants(self.ray.pid):
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and "ServeReplica" in command.read_text():
                found.add(pid)
        return found


@pytest.fixture(scope="session")
def served(mini_kb: KnowledgeBase) -> Iterator[Served]:
    port = free_ports(1)[0]
    with local_ray(num_cpus=4) as ray, serving(ray, mini_kb.root, port=port, **TWO_REPLICAS) as url:
        yield Served(url, port, ray)


@pytest.fixture(scope="session")
def served_url(served: Served) -> str:
    return served.url


@pytest.fixture(scope="session")
def client(served_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served_url, timeout=60, trust_env=False) as client:
        yield client
