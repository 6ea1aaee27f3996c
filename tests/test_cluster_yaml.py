import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parent.parent
WORKERS = ("cpu_worker", "gpu_worker")


@pytest.fixture
def config() -> dict[str, Any]:
    prepared: dict[str, Any] = prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    return prepared


def node(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = config["available_node_types"][name]["node_config"]
    return found


def test_rays_own_validation_accepts_it(config: dict[str, Any]) -> None:
    validate_config(config)
    assert config["head_node_type"] in config["available_node_types"]


def test_rays_validation_would_notice_a_mistake(config: dict[str, Any]) -> None:
    config["available_node_types"]["cpu_worker"]["max_worker"] = 3
    with pytest.raises(Exception, match="max_worker"):
        validate_config(config)


def test_workers_have_limits_and_cost_nothing_when_idle(config: dict[str, Any]) -> None:
    limits = [config["available_node_types"][name] for name in WORKERS]
    assert all(limit["min_workers"] == 0 < limit["max_workers"] for limit in limits)
    assert sum(limit["max_workers"] for limit in limits) == config["max_workers"]


def test_the_head_is_on_demand_and_runs_no_tasks_while_workers_are_spot(config: dict[str, Any]) -> None:
    assert config["available_node_types"]["head"]["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in node(config, "head")
    assert all(node(config, name)["InstanceMarketOptions"] == {"MarketType": "spot"} for name in WORKERS)


def test_no_node_gets_rays_open_security_group_and_only_the_head_takes_ssh(config: dict[str, Any]) -> None:
    head, *workers = (set(node(config, name)["SecurityGroupIds"]) for name in ("head", *WORKERS))
    assert workers[0] == workers[1] < head
    assert "security_group" not in config["provider"]


def test_every_node_has_an_instance_profile_and_guards_its_credentials(config: dict[str, Any]) -> None:
    profiles = {name: node(config, name)["IamInstanceProfile"]["Name"] for name in ("head", *WORKERS)}
    assert profiles["head"] != profiles["cpu_worker"] == profiles["gpu_worker"]
    assert all(node(config, name)["MetadataOptions"] == {"HttpTokens": "required"} for name in profiles)


def test_every_mounted_file_but_the_token_is_in_the_repository(config: dict[str, Any]) -> None:
    missing = {local for local in config["file_mounts"].values() if not (ROOT / local).exists()}
    assert missing <= {"./.ray-token"}
    # rsync would leave out the token, too, if it were named here
    assert not any("token" in pattern for pattern in config["rsync_exclude"])


def test_nodes_install_the_pinned_versions(config: dict[str, Any]) -> None:
    (install,) = (command for command in config["setup_commands"] if "requirements.lock" in command)
    assert "--require-hashes" in install


def test_the_environment_of_the_nodes_turns_authentication_on(config: dict[str, Any], tmp_path: Path) -> None:
    (command,) = (command for command in config["setup_commands"] if ".deeped-env" in command)
    script = f"{command}\n. ~/.deeped-env && env"
    run = subprocess.run(
        ["bash", "-c", script], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    environment = dict(line.partition("=")[::2] for line in run.stdout.splitlines())
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["PATH"] == f"{tmp_path}/venv/bin:/usr/bin:/bin"
    assert environment["RAY_SERVE_HAPROXY_BINARY_PATH"] == f"{tmp_path}/venv/bin/deeped-edge"


def test_every_ray_starts_in_that_environment_and_exports_metrics(config: dict[str, Any]) -> None:
    for kind in ("head", "worker"):
        (command,) = config[f"{kind}_start_ray_commands"]
        assert command.startswith(". ~/.deeped-env;")
        assert "--metrics-export-port=8080" in shlex.split(command.replace("(", " ").replace(")", " "))
        assert not re.search(r"ray stop|0\.0\.0\.0", command)


def test_rays_aws_provider_takes_it_as_it_is(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a simulated EC2: Ray adds no security group of its own, and finds out what the instances have."""
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes a key there
    monkeypatch.setenv("AWS_DEFAULT_REGION", config["provider"]["region"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with moto.mock_aws():
        from ray.autoscaler._private.aws.config import bootstrap_aws
        from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

        ec2 = boto3.client("ec2")
        (vpc,) = ec2.describe_vpcs()["Vpcs"]
        made = {
            name: ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc["VpcId"])["GroupId"]
            for name in {group for kind in ("head", *WORKERS) for group in node(config, kind)["SecurityGroupIds"]}
        }
        for kind in ("head", *WORKERS):
            node(config, kind)["SecurityGroupIds"] = [made[name] for name in node(config, kind)["SecurityGroupIds"]]
        before = ec2.describe_security_groups()["SecurityGroups"]
        started = bootstrap_aws(AWSNodeProvider.fillout_available_node_types_resources(config))
        assert ec2.describe_security_groups()["SecurityGroups"] == before
    resources = {name: kind["resources"] for name, kind in started["available_node_types"].items()}
    assert (resources["head"]["CPU"], resources["cpu_worker"]["CPU"], resources["gpu_worker"]["GPU"]) == (0, 16, 1)
