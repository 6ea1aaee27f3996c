"""Interfaces beside the server's own: each can be deleted, and nothing else is missed."""

from pathlib import Path

import pytest

from deeped_ray.serving import doors
from deeped_ray.serving.api import create_api
from deeped_ray.serving.service import LinkingService


def paths_of(service: LinkingService) -> set[str]:
    return {getattr(route, "path", "") for route in create_api(service).routes}


@pytest.mark.parametrize("gone", ["feedback", "mcp", "reconcile"])
def test_a_server_does_without_a_door(
    service: LinkingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    everything = paths_of(service)
    for path in Path(doors.__file__).parent.iterdir():
        if path.stem != gone:
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.setattr(doors, "__path__", [str(tmp_path)])
    missing = everything - paths_of(service)
    assert missing == {path for path in everything if path.startswith(f"/{gone}")} != set()
