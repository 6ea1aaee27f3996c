"""The Ray that a job starts for itself."""

import os
from typing import Any

import pytest
import ray

from deeped_ray.running.cluster import NOWHERE, ensure_ray
from deeped_ray.running.local_ray import API_SERVER


def start_after(failures: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for Ray, which fails as it says, then starts: returns what is asked of it, in order."""
    asked = list[str]()

    def init(**_: Any) -> None:
        asked.append("init")
        if failures:
            raise Exception(failures.pop(0))

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: asked.append("shutdown"))
    return asked


def test_ray_that_is_too_slow_on_a_busy_machine_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = start_after(["The current node timed out during startup. This could happen because"], monkeypatch)
    ensure_ray()
    assert asked == ["init", "shutdown", "init"]


def test_another_failure_of_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = start_after(["Can't find a `node_ip_address.json`"], monkeypatch)
    with pytest.raises(Exception, match="Can't find"):
        ensure_ray()
    assert asked == ["init"]


def test_a_ray_of_ones_own_asks_no_other_rays_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str | None]()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: asked.append(os.environ.get(API_SERVER)))
    ensure_ray()
    assert asked == [NOWHERE]
    assert API_SERVER not in os.environ
