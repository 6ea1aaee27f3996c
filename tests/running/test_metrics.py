"""What the stages count reaches Prometheus, under the names that the dashboard and the documentation use."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from deeped_ray.running import logs, metrics, tasks
from deeped_ray.running.http import open_url
from deeped_ray.running.metrics import METRICS
from deeped_ray.storage.location import Location
from deploy.grafana.make_dashboard import dashboard
from tests.s3 import S3, failing_twice, prefix
from tests.test_grafana import metrics_in, names_exported

ROOT = Path(__file__).parent.parent.parent


def scrape(*, until: Callable[[str], bool]) -> str:
    """What the session's Ray exports, once its processes have reported it."""
    (node,) = [node for node in ray.nodes() if node["Alive"]]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    deadline = time.monotonic() + 240
    while True:
        with open_url(url, timeout_s=60.0) as reply:
            text = reply.read().decode()
        if until(text) or time.monotonic() > deadline:
            return text
        time.sleep(0.2)


def value(text: str, metric: str, **tags: str) -> float:
    """Summed over processes; -1 where there is none."""
    found = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(f"{metric}{{") and all(f'{tag}="{wanted}"' in line for tag, wanted in tags.items())
    ]
    return sum(found) if found else -1.0


def die_once(path: Path) -> int:
    if path.name == "a" and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def fail(_: str) -> None:
    raise ValueError("a bad shard")


def test_stages_are_exported_under_the_names_the_dashboard_uses(
    local_ray_session: None, s3: S3, tmp_path: Path
) -> None:
    logs.label(run="tested")
    file = Location(f"{prefix('metrics')}/file")
    file.write_bytes(b"x" * 1000)
    file._try("write", failing_twice("SLOW_DOWN"))
    file.fetch(tmp_path / "file")
    paths = [tmp_path / name for name in "abcd"]
    tasks.run("sleep", die_once, paths, earlier=lambda path: 1 if path.name == "d" else None, unit="pieces")
    with pytest.raises(ValueError, match="a bad shard"):
        tasks.run("break", fail, ["a"])
    for name in ("loss", "dev_accuracy", "epoch"):
        metrics.record(name, 0.5, stage="train", model="local", seed="0")
    wanted = {name for name in metrics_in(dashboard()) if "_stage_" in name or name.startswith("ray_node")}
    expected = [
        (4, "ray_deeped_stage_done", {"stage": "sleep", "unit": "pieces", "run": "tested"}),
        (4, "ray_deeped_stage_size", {"stage": "sleep"}),
        (3, "ray_deeped_stage_tasks_total", {"stage": "sleep", "outcome": "finished"}),
        (1, "ray_deeped_stage_tasks_total", {"stage": "sleep", "outcome": "retried"}),
        (1, "ray_deeped_stage_tasks_total", {"stage": "break", "outcome": "failed"}),
        (3, "ray_deeped_stage_task_seconds_count", {"stage": "sleep"}),
        (1000, "ray_deeped_stage_fetched_bytes_total", {"run": "tested"}),
        (2, "ray_deeped_stage_storage_retries_total", {"action": "write", "run": "tested"}),
    ]

    def found(text: str) -> list[tuple[float, str, dict[str, str]]]:
        return [(value(text, metric, **tags), metric, tags) for _, metric, tags in expected]

    text = scrape(until=lambda text: wanted <= names_exported(text) and found(text) == expected)
    assert wanted - names_exported(text) == set()
    assert found(text) == expected
    assert 5e7 < value(text, "ray_deeped_stage_worker_bytes", stage="sleep") < 5e9


def test_a_listener_hears_run_and_stage_and_without_one_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_send", None)
    metrics.record("fetched_bytes", 5)
    monkeypatch.setattr(metrics, "_send", lambda *recorded: heard.append(recorded))
    heard: list[tuple[object, ...]] = []
    metrics.record("fetched_bytes", 5, stage="s")
    assert heard == [("fetched_bytes", 5.0, {"run": logs.labels().run, "stage": "s"})]


def test_the_documentation_lists_all_of_them() -> None:
    documented = set(re.findall(r"`deeped_stage_(\w+)`", (ROOT / "docs" / "observability.md").read_text()))
    assert documented == set(METRICS)
