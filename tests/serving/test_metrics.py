"""`GET /metrics` on a real Serve."""

import os
import re
import signal

import httpx

from tests.serving.conftest import Served, wait_until


def living(served: Served) -> dict[int, str]:
    """Process ids and Ray's worker ids of the replicas that run."""
    deployments = served.serve.applications()["linker"]["deployments"].values()
    replicas = [replica for deployment in deployments for replica in deployment["replicas"]]
    return {replica["pid"]: replica["worker_id"] for replica in replicas if replica["state"] == "RUNNING"}


def counted(url: str) -> set[str]:
    """Worker ids that have counted requests."""
    return set(
        re.findall(r'ray_deeped_requests_total\{.*WorkerId="(\w+)"', httpx.get(url, trust_env=False, timeout=60).text)
    )


def test_replicas_that_died_leave_the_metrics(served: Served) -> None:
    if not counted(served.ray.metrics_url) - set(living(served).values()):  # no replica of an earlier test has died
        pid = min(living(served))
        wait_until(lambda: counted(f"{served.url}/metrics"), "requests are counted")
        os.kill(pid, signal.SIGKILL)
        served.wait_for_replicas(1, without=pid)
    wait_until(lambda: counted(f"{served.url}/metrics") <= set(living(served).values()), "only the living are counted")
