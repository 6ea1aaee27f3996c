"""Writes deeped-ray.json, the Grafana dashboard, beside itself: `python deploy/grafana/make_dashboard.py`.

A dashboard's JSON says everything many times over; here every panel is one entry, and places follow from the order.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("deeped-ray.json")
WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 24, 8, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
STAGE = 'run=~"$run",stage=~"$stage"'
ROUTE = 'route=~"$route"'
EVERY = "[$__rate_interval]"
LATELY = "[15m]"
"""Ray forgets a gauge within 20 s, and a stage sets its own only when a task has ended."""


class Panel(NamedTuple):
    title: str
    unit: str
    lines: dict[str, str]
    """Legend -> expression."""
    meaning: str = ""


def quantiles(metric: str, labels: str, *, by: str = "") -> dict[str, str]:
    keys, legend = (f"{by}, le", f"{{{{{by}}}}} ") if by else ("le", "")
    return {
        f"{legend}p{share * 100:.0f}": f"histogram_quantile({share}, sum by ({keys}) (rate({metric}_bucket{{{labels}}}{EVERY})))"
        for share in (0.5, 0.95, 0.99)
    }


def latest(metric: str, *, by: str, labels: str = STAGE) -> str:
    """A gauge may come from several processes, driver and workers, which agree."""
    return f"max by ({by}) (last_over_time(ray_deeped_stage_{metric}{{{labels}}}{LATELY}))"


DONE, SIZE = latest("done", by="run, stage, unit"), latest("size", by="run, stage, unit")
SPEED = f"max by (run, stage, unit) (deriv(ray_deeped_stage_done{{{STAGE}}}[5m]))"


def curve(metric: str) -> dict[str, str]:
    return {"{{run}} {{model}}.{{seed}}": latest(metric, by="run, model, seed", labels='run=~"$run"')}


BY_STAGE = "{{run}} {{stage}}"

ROWS: dict[str, list[Panel]] = {
    "Stages": [
        Panel("Progress", "percentunit", {BY_STAGE: f"{DONE} / {SIZE}"}, "Work of earlier runs included."),
        Panel(
            "Speed, in the stage's own unit per second", "short", {BY_STAGE + " ({{unit}})": f"clamp_min({SPEED}, 0)"}
        ),
        Panel("Time left", "s", {BY_STAGE: f"({SIZE} - {DONE}) / ({SPEED} > 0)"}),
        Panel("Time per task", "s", quantiles("ray_deeped_stage_task_seconds", STAGE, by="stage")),
        Panel(
            "Tasks finished per second",
            "ops",
            {
                BY_STAGE: f'sum by (run, stage) (rate(ray_deeped_stage_tasks_total{{outcome="finished",{STAGE}}}{EVERY}))'
            },
        ),
        Panel(
            "Tasks failed and run again",
            "short",
            {
                "{{run}} {{stage}} {{outcome}}": (
                    f'sum by (run, stage, outcome) (ray_deeped_stage_tasks_total{{outcome!="finished",{STAGE}}})'
                )
            },
            "Retried: finished, after a worker or node had been lost. A failed task ends its job.",
        ),
        Panel("Largest worker", "bytes", {BY_STAGE: latest("worker_bytes", by="run, stage")}),
        Panel(
            "Storage asked again",
            "short",
            {"{{stage}} {{action}}": (f"sum by (stage, action) (ray_deeped_stage_storage_retries_total{{{STAGE}}})")},
        ),
        Panel(
            "Fetched from storage",
            "Bps",
            {BY_STAGE: f"sum by (run, stage) (rate(ray_deeped_stage_fetched_bytes_total{{{STAGE}}}{EVERY}))"},
        ),
    ],
    "Training": [
        Panel("Loss", "short", curve("loss")),
        Panel("Accuracy in validation", "percentunit", curve("dev_accuracy")),
        Panel("Epoch", "short", curve("epoch")),
    ],
    "Serving": [
        Panel(
            "Requests per second, by status",
            "reqps",
            {"{{status}}": f"sum by (status) (rate(ray_deeped_requests_total{{{ROUTE}}}{EVERY}))"},
        ),
        Panel("Time to answer", "s", quantiles("ray_deeped_request_seconds", ROUTE)),
        Panel(
            "Mentions per second, by answer",
            "ops",
            {"{{answer}}": f"sum by (answer) (rate(ray_deeped_mentions_total{EVERY}))"},
        ),
        Panel(
            "Share of mentions without an entity",
            "percentunit",
            {
                "NIL": f'sum(rate(ray_deeped_mentions_total{{answer="none"}}{EVERY})) / sum(rate(ray_deeped_mentions_total{EVERY}))'
            },
        ),
        Panel("Mentions linked at once", "short", quantiles("ray_deeped_batch_mentions", "")),
        Panel(
            "Replicas",
            "short",
            {
                "{{application}} {{deployment}}": "sum by (application, deployment) (ray_serve_deployment_replica_healthy)"
            },
        ),
        Panel(
            "Requests waiting and under way",
            "short",
            {
                "waiting": "sum(ray_serve_deployment_queued_queries)",
                "under way": "sum(ray_serve_replica_processing_queries)",
            },
        ),
    ],
    "Cluster": [
        Panel("Processors in use", "percent", {"{{ip}}": "avg by (ip) (ray_node_cpu_utilization)"}),
        Panel("Memory in use", "percentunit", {"{{ip}}": "max by (ip) (ray_node_mem_used / ray_node_mem_total)"}),
        Panel("Object store", "bytes", {"{{Location}}": "sum by (Location) (ray_object_store_memory)"}),
        Panel("Disk in use", "bytes", {"{{ip}}": "max by (ip) (ray_node_disk_usage)"}),
        Panel(
            "Tasks running, by function",
            "short",
            {"{{Name}}": 'clamp_min(sum by (Name) (ray_tasks{State=~"RUNNING.*"}), 0)'},
        ),
        Panel("Nodes", "short", {"{{node_type}}": "sum by (node_type) (ray_cluster_active_nodes)"}),
    ],
}

VARIABLES = {
    "run": "label_values(ray_deeped_stage_done, run)",
    "stage": 'label_values(ray_deeped_stage_done{run=~"$run"}, stage)',
    "route": "label_values(ray_deeped_requests_total, route)",
}


def dashboard() -> dict[str, Any]:
    return {
        "title": "deeped-ray",
        "uid": "deeped-ray",
        "tags": ["deeped-ray", "ray"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_source(), *(_variable(name, query) for name, query in VARIABLES.items())]},
        "annotations": {"list": []},
        "panels": _placed(),
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    everything = {"text": "All", "value": "$__all"}
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes, for runs come and go
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": everything,
        "sort": 1,
    }


def _placed() -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        placed.append({"id": len(placed) + 1, "type": "row", "title": title, "gridPos": place, "panels": []})
        y += 1
        for first in range(0, len(panels), WIDTH // PANEL_WIDTH):
            for column, panel in enumerate(panels[first : first + WIDTH // PANEL_WIDTH]):
                place = {"x": column * PANEL_WIDTH, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT}
                placed.append({"id": len(placed) + 1, **_graph(panel), "gridPos": place})
            y += PANEL_HEIGHT
    return placed


def _graph(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for number, (legend, expression) in enumerate(panel.lines.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=2) + "\n")
