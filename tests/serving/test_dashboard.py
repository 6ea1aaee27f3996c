"""The dashboard's panels about serving ask for metrics that a real Ray Serve exports."""

import httpx

from deeped_ray.running.http import open_url
from deploy.grafana.make_dashboard import dashboard
from tests.serving.conftest import Served, wait_until
from tests.test_grafana import metrics_in, names_exported


def test_every_metric_of_serving_is_exported(served: Served, served_client: httpx.Client) -> None:
    wanted = {name for name in metrics_in(dashboard()) if "_stage_" not in name}

    def are_all_there() -> bool:
        assert served_client.post("/link", json={"text": "Montreal met Toronto on the ice."}).status_code == 200
        with open_url(served.ray.metrics_url, timeout_s=60.0) as reply:
            return wanted <= names_exported(reply.read().decode())

    wait_until(are_all_there, f"Ray exports {sorted(wanted)}")
