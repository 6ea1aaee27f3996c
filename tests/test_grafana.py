"""The dashboard is what its script writes, is put together as Grafana expects, and asks for nothing unknown."""

import itertools
import json
import re
from typing import Any

from deeped_ray.running.metrics import METRICS, PREFIX
from deploy.grafana.make_dashboard import FILE, dashboard

_NAME = re.compile(r"\bray_[a-z_]+")
_SAMPLE = re.compile(r"^(\w+)\{")


def metrics_in(board: dict[str, Any]) -> set[str]:
    """Names in all expressions, of panels and of variables."""
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries = [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    return {name for text in [*expressions, *queries] for name in _NAME.findall(text)}


def names_exported(text: str) -> set[str]:
    """Names of samples, as Prometheus reads them."""
    return {match[1] for line in text.splitlines() if (match := _SAMPLE.match(line))}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["panels"]
    return found


def test_the_file_is_what_the_script_writes() -> None:
    assert json.loads(FILE.read_text()) == dashboard()


def test_panels_have_ids_and_places_of_their_own() -> None:
    assert dashboard()["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for a, b in itertools.combinations([panel["gridPos"] for panel in panels()], 2):
        is_apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert is_apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels())


def test_every_graph_asks_the_chosen_source_something_balanced() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            for opening, closing in ("()", "{}", "[]"):
                assert target["expr"].count(opening) == target["expr"].count(closing), target["expr"]
            assert _NAME.search(target["expr"])


def test_variables_choose_source_run_stage_and_route() -> None:
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "run", "stage", "route"]


def test_every_metric_of_a_stage_is_shown() -> None:
    suffixes = {"counter": "_total", "gauge": "", "histogram": "_bucket"}
    exported = {f"ray_{PREFIX}{name}{suffixes[metric.kind]}" for name, metric in METRICS.items()}
    assert {name for name in metrics_in(dashboard()) if "_stage_" in name} == exported
