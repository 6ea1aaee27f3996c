"""What the dashboard shows of serving is what a real Ray Serve exports."""

import time

import httpx

from deeped_ray.running.local_ray import open_url
from deploy.grafana.make_dashboard import dashboard
from tests.serving.conftest import Served
from tests.test_grafana import metrics_in, names_exported


def test_every_metric_of_serving_is_exported(served: Served, client: httpx.Client) -> None:
    wanted = {name for name in metrics_in(dashboard()) if "_stage_" not in name}
    deadline = time.monotonic() + 40
    missing = wanted
    while missing and time.monotonic() < deadline:
        assert client.post("/link", json={"text": "Montreal met Toronto on the ice."}).status_code == 200
        with open_url(served.ray.metrics_url, timeout_s=5.0) as reply:
            missing = wanted - names_exported(reply.read().decode())
        time.sleep(0.5)
    assert missing == set()
