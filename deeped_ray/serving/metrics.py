"""Metrics for Prometheus: every replica counts through Ray, and `GET /metrics` gathers the counts of all nodes.

ray_deeped_requests_total{route, status}     ray_deeped_request_seconds{route}
ray_deeped_mentions_total{answer}            ray_deeped_batch_mentions
"""

import asyncio
import re
from collections.abc import Sequence

import ray
from ray.util.metrics import Counter, Histogram

from deeped_ray.linking.answers import Answers
from deeped_ray.running.http import open_url

# without those of the stages, which may run on the same cluster
_OURS = re.compile(r"^(# (HELP|TYPE) )?(?P<metric>ray_deeped_(?!stage_)\w+?)(_bucket|_sum|_count)?(?=[ {])")
_WORKER = re.compile(r'WorkerId="(\w+)"')
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

    def answers(self, answers: Sequence[Answers]) -> None:
        is_linked = [reason is None for found in answers for reason in found.reasons]
        for answer, number in (("entity", is_linked.count(True)), ("none", is_linked.count(False))):
            if number:
                self._mentions.inc(number, {"answer": answer})

    def batch(self, num_mentions: int) -> None:
        if num_mentions:
            self._batch.observe(num_mentions)


async def gather() -> str:
    """Our metrics from all nodes, as Ray's agents export them: a few seconds old."""
    nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"] and node["MetricsExportPort"]]
    urls = [f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics" for node in nodes]
    texts = await asyncio.gather(*(asyncio.to_thread(_fetch, url) for url in urls))
    gone = await asyncio.to_thread(_gone_workers)
    lines = (line for text in texts for line in text.splitlines() if _OURS.match(line))
    samples = dict.fromkeys(line for line in lines if not gone.intersection(_WORKER.findall(line)))
    return "\n".join([*sorted(samples, key=_family), ""])


def _gone_workers() -> set[str]:
    """Ray's agents keep the series of processes that have ended. If Ray does not say which, all series stay."""
    # imported here: 0.1 s of a replica's start, which answers nobody yet
    from ray.util.state import list_workers
    from ray.util.state.exception import RayStateApiException

    gcs = ray.get_runtime_context().gcs_address
    try:
        workers = list_workers(
            gcs, filters=[("is_alive", "=", False)], limit=10_000, timeout=3, raise_on_missing_output=False
        )
    except (RayStateApiException, OSError):
        return set()
    return {worker.worker_id for worker in workers}


def _family(line: str) -> tuple[str, bool]:
    """Sorts the lines of a metric together, its help and type first."""
    match = _OURS.match(line)
    assert match is not None
    return match["metric"], not line.startswith("#")


def _fetch(url: str) -> str:
    try:
        with open_url(url, timeout_s=3.0) as reply:
            return reply.read().decode()
    except OSError:  # this node is going away; the others still answer
        return ""
