from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from deeped_ray.serving import local
from deeped_ray.serving.local import write_config


def application(tmp_path: Path, **deployment: Any) -> Any:
    path = write_config(tmp_path / "serve.yaml", 8001, {"kb": "/kb", "model": "local"}, **deployment)
    config = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    assert config.http_options.port == 8001
    return config.applications[0]


def test_replicas_of_a_checkout_run_its_code(tmp_path: Path) -> None:
    path = application(tmp_path).runtime_env["env_vars"]["PYTHONPATH"]
    assert Path(path.split(":")[0]) == Path(__file__).parent.parent.parent


def test_an_installed_package_needs_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ROOT", tmp_path)
    found = application(tmp_path)
    assert (found.import_path, found.runtime_env) == ("deeped_ray.serving.app:build", {})


def test_settings_that_are_not_given_keep_their_defaults(tmp_path: Path) -> None:
    found = application(tmp_path, autoscaling_config={"max_replicas": 3})
    (deployment,) = found.deployments
    assert (deployment.autoscaling_config["max_replicas"], deployment.autoscaling_config["min_replicas"]) == (3, 2)
    assert (found.args["model"], found.args["max_batch_mentions"]) == ("local", 400)
