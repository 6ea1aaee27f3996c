from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parent.parent


@pytest.fixture
def config() -> dict[str, Any]:
    prepared: dict[str, Any] = prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    return prepared


def test_rays_own_validation_accepts_it(config: dict[str, Any]) -> None:
    validate_config(config)
    assert config["head_node_type"] in config["available_node_types"]


def test_rays_validation_would_notice_a_mistake(config: dict[str, Any]) -> None:
    config["available_node_types"]["cpu_worker"]["max_worker"] = 3
    with pytest.raises(Exception, match="max_worker"):
        validate_config(config)


def test_workers_have_limits_and_nodes_share_pins_and_token(config: dict[str, Any]) -> None:
    for name in ("cpu_worker", "gpu_worker"):
        node_type = config["available_node_types"][name]
        assert 0 <= node_type["min_workers"] <= node_type["max_workers"] <= config["max_workers"]
    assert any("--require-hashes" in command and "requirements.lock" in command for command in config["setup_commands"])
    assert "~/.ray/auth_token" in config["file_mounts"]
    assert "RAY_AUTH_MODE=token" in " ".join(config["setup_commands"])
