from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.deployment import deployment_to_schema
from ray.serve.schema import ServeDeploySchema

from deeped_ray.serving.app import build
from deeped_ray.serving.config import AppArgs, DeploymentSettings, by_name, config_for, config_for_several, main, render
from deeped_ray.types import DeepEdError
from serve.app import build as door

CONFIG = Path(__file__).parent.parent.parent / "serve" / "config.yaml"


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    return loaded


def test_the_file_is_what_the_app_makes_of_it() -> None:
    assert CONFIG.read_text() == render(config_for(AppArgs(kb="kb/mini"))), (
        "serve/config.yaml is old: run `make config`"
    )


def test_ray_serve_accepts_the_file(config: dict[str, Any]) -> None:
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"


def test_several_knowledge_bases_have_an_application_each() -> None:
    kbs = by_name(["de=s3://bucket/de", "ja=/data/ja?a=b"])
    config = config_for_several({name: AppArgs(kb=kb) for name, kb in kbs.items()})
    applications = ServeDeploySchema.model_validate(yaml.safe_load(render(config))).applications
    assert [(each.name, each.route_prefix, each.args["kb"]) for each in applications] == [
        ("linker-de", "/de", "s3://bucket/de"),
        ("linker-ja", "/ja", "/data/ja?a=b"),
    ]
    assert by_name(["s3://bucket/kb?region=x"]) == {"": "s3://bucket/kb?region=x"}
    for given in (["de=a", "b"], ["de=a", "de=b"], ["a", "b"]):
        with pytest.raises(DeepEdError, match="each with a name"):
            by_name(given)


def test_the_door_of_a_checkout_leads_to_the_same_app() -> None:
    assert door is build


def test_deploying_the_file_and_running_the_app_by_hand_give_the_same_replicas(config: dict[str, Any]) -> None:
    (in_file,) = config["applications"][0]["deployments"]
    deployment = build(AppArgs(kb="kb/mini"))._bound_deployment
    by_hand = deployment_to_schema(deployment).model_dump(include=set(in_file))
    assert only_known(by_hand, in_file) == in_file


def only_known(values: Any, template: Any) -> Any:
    """Without the defaults that Ray Serve adds within a setting."""
    if isinstance(template, dict):
        return {name: only_known(values[name], template[name]) for name in template}
    return values


def test_options_change_what_is_written_and_nothing_else(
    config: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--kb", "s3://bucket/kb", "--host", "0.0.0.0", "--token-file", "/run/token"]
    monkeypatch.setattr("sys.argv", ["config", *options])
    main()
    config["http_options"]["host"] = "0.0.0.0"
    config["applications"][0]["args"] |= {"kb": "s3://bucket/kb", "token_file": "/run/token"}
    assert yaml.safe_load(capsys.readouterr().out) == config


def test_reasons_stand_beside_their_settings() -> None:
    lines = CONFIG.read_text().splitlines()
    for name, field in DeploymentSettings.model_fields.items():
        if field.description:
            (at,) = (number for number, line in enumerate(lines) if line.strip().startswith(f"{name}:"))
            assert field.description.split()[0] in " ".join(lines[at - 2 : at + 1])
