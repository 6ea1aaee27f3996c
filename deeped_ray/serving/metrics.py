"""Metrics for Prometheus, counted by every replica through Ray and gathered from all nodes for `GET /metrics`.

ray_deeped_requests_total{route, status}     ray_deeped_request_seconds{route}
ray_deeped_mentions_total{answer}            ray_deeped_batch_mentions
"""

import asyncio
import re
import urllib.request
from collections.abc import Sequence

import ray
from ray.util.metrics import Counter, Histogram

from deeped_ray.running.local_ray import open_url
from deeped_ray.types import Prediction

# stages that run on the same cluster are not the endpoint's to tell of
_OURS = re.compile(r"^(# (HELP|TYPE) )?(?P<metric>ray_deeped_(?!stage_)\w+?)(_bucket|_sum|_count)?(?=[ {])")
_SECONDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]
_MENTIONS = [1.0, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]


class Metrics:
    def __init__(self) -> None:
        self._requests = Counter("deeped_requests", "requests answered", tag_keys=("route", "status"))
        self._seconds = Histogram("deeped_request_seconds", "time to answer", boundaries=_SECONDS, tag_keys=("route",))
        self._mentions = Counter("deeped_mentions", "mentions answered, with an entity or none", tag_keys=("answer",))
        self._batch = Histogram("deeped_batch_mentions", "mentions linked at once", boundaries=_MENTIONS)

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests.inc(1, {"route": route, "status": str(status)})
        self._seconds.observe(seconds, {"route": route})

    def answers(self, predictions: Sequence[Prediction]) -> None:
        num_linked = sum(prediction.best is not None for prediction in predictions)
        for answer, number in (("entity", num_linked), ("none", len(predictions) - num_linked)):
            if number:
                self._mentions.inc(number, {"answer": answer})

    def batch(self, num_mentions: int) -> None:
        self._batch.observe(num_mentions)


async def gather() -> str:
    """Our metrics of all nodes, as Ray's agents export them; a few seconds old."""
    nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"] and node["MetricsExportPort"]]
    urls = [f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics" for node in nodes]
    texts = await asyncio.gather(*(asyncio.to_thread(_fetch, url) for url in urls))
    samples = dict.fromkeys(line for text in texts for line in text.splitlines() if _OURS.match(line))
    return "\n".join([*sorted(samples, key=_family), ""])


def _family(line: str) -> tuple[str, bool]:
    """The lines of a metric belong together, what it is first."""
    match = _OURS.match(line)
    assert match is not None
    return match["metric"], not line.startswith("#")


def _fetch(url: str) -> str:
    try:
        with open_url(urllib.request.Request(url), timeout_s=3.0) as reply:
            text: str = reply.read().decode()
            return text
    except OSError:  # a node that is going away; the others still have something to say
        return ""
