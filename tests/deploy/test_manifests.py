import copy
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from tests.deploy.conftest import MANIFESTS, ROOT, Check, Manifest, manifests, only

FILES = sorted(path.name for path in MANIFESTS.glob("*.yaml"))
CLUSTERS = {
    "raycluster.yaml": only("raycluster.yaml", "RayCluster"),
    "rayjob.yaml": only("rayjob.yaml", "RayJob")["rayClusterSpec"],
    "rayservice.yaml": only("rayservice.yaml", "RayService")["rayClusterConfig"],
}
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)


def groups(cluster: Manifest) -> Iterator[Manifest]:
    yield cluster["headGroupSpec"]
    yield from cluster["workerGroupSpecs"]


def pods() -> Iterator[Manifest]:
    """Every pod template of the folder."""
    for cluster in CLUSTERS.values():
        yield from (group["template"] for group in groups(cluster))
    yield only("rayjob.yaml", "RayJob")["submitterPodTemplate"]
    yield refresh_pod()


def refresh_pod() -> Manifest:
    pod: Manifest = only("refresh.yaml", "CronJob")["jobTemplate"]["spec"]["template"]
    return pod


@pytest.mark.parametrize("name", FILES)
def test_every_manifest_fits_its_schema(name: str, problems: Check) -> None:
    for manifest in manifests(name):
        assert problems(manifest) == []


@pytest.mark.parametrize(
    ("path", "misspelt"),
    [
        (["spec"], "upgradeStrategie"),
        (["spec", "upgradeStrategy"], "typ"),
        (["spec", "rayClusterConfig"], "enableInTreeAutoscaler"),
        (["spec", "rayClusterConfig", "authOptions"], "secret"),
        (["spec", "rayClusterConfig", "headGroupSpec"], "rayStartParam"),
        (["spec", "rayClusterConfig", "workerGroupSpecs", 0], "maxReplica"),
        (["spec", "rayClusterConfig", "workerGroupSpecs", 0, "template", "spec"], "securityContex"),
        (["spec", "rayClusterConfig", "workerGroupSpecs", 0, "template", "spec", "containers", 0], "resource"),
        (["metadata"], "label"),
    ],
)
def test_a_misspelt_field_is_noticed_wherever_it_stands(path: list[Any], misspelt: str, problems: Check) -> None:
    manifest = copy.deepcopy(manifests("rayservice.yaml")[0])
    place: Any = manifest
    for key in path:
        place = place[key]
    place[misspelt] = {}
    assert any(f"'{misspelt}' was unexpected" in problem for problem in problems(manifest))


@pytest.mark.parametrize(("field", "value"), [("type", "NewClusters"), ("type", 1)])
def test_a_value_that_is_no_choice_is_noticed(field: str, value: Any, problems: Check) -> None:
    manifest = manifests("rayservice.yaml")[0]
    manifest["spec"]["upgradeStrategy"][field] = value
    assert problems(manifest)


def test_start_parameters_have_to_be_strings(problems: Check) -> None:
    manifest = manifests("raycluster.yaml")[0]
    manifest["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    assert problems(manifest)


def test_what_is_commented_out_would_fit_too(problems: Check) -> None:
    for name in ("raycluster.yaml", "rayservice.yaml"):
        text = (MANIFESTS / name).read_text()
        block = re.search(r"(?m)^ *# gcsFaultToleranceOptions:\n(?: *#   .*\n)+", text)
        assert block
        uncommented = text.replace(block[0], re.sub(r"(?m)^( *)# ", r"\1", block[0]))
        manifest = next(iter(yaml.safe_load_all(uncommented)))
        assert "gcsFaultToleranceOptions" in (manifest["spec"].get("rayClusterConfig") or manifest["spec"])
        assert problems(manifest) == []


@each_cluster
def test_clusters_run_the_pinned_ray_with_a_token(cluster: Manifest) -> None:
    (pinned,) = re.findall(r"(?m)^ray==(\S+)", (ROOT / "constraints.txt").read_text())
    assert cluster["rayVersion"] == pinned
    assert cluster["authOptions"] == {"mode": "token", "secretName": "deeped-ray-token"}


@each_cluster
def test_the_head_runs_no_tasks_and_every_pod_exports_metrics(cluster: Manifest) -> None:
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["headGroupSpec"].get("serviceType", "ClusterIP") == "ClusterIP"
    for group in groups(cluster):
        assert group["rayStartParams"]["metrics-export-port"] == "8080"
        assert {"name": "metrics", "containerPort": 8080} in group["template"]["spec"]["containers"][0]["ports"]


@each_cluster
def test_workers_are_scaled_within_limits(cluster: Manifest) -> None:
    assert cluster["enableInTreeAutoscaling"]
    assert cluster["autoscalerOptions"]["version"] == "v2"
    for group in groups(cluster):
        assert group["template"]["spec"]["restartPolicy"] == "Never", "autoscaler v2 asks for it"
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["maxReplicas"] < 100


def test_no_pod_runs_as_root_or_without_limits() -> None:
    (user,) = re.findall(r"(?m)^ARG UID=(\d+)", (ROOT / "deploy" / "Dockerfile").read_text())
    for pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["runAsUser"] == int(user)
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert set(container["resources"]) == {"requests", "limits"}


def test_all_pods_run_one_image_that_is_obviously_not_ours() -> None:
    images = {container["image"] for pod in pods() for container in pod["spec"]["containers"]}
    assert len(images) == 1
    assert images.pop().startswith("registry.example.com/your-org/")


def test_only_heads_talk_to_kubernetes() -> None:
    for cluster in CLUSTERS.values():
        for group in cluster["workerGroupSpecs"]:
            assert group["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_network_policy_covers_every_pod() -> None:
    selected = only("common.yaml", "NetworkPolicy")["podSelector"]["matchLabels"]
    for pod in pods():
        assert selected.items() <= pod["metadata"]["labels"].items()


def test_disruption_budgets_select_pods_and_name_numbers() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods()]
    budgets = [manifest for name in FILES for manifest in manifests(name) if manifest["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 4
    for budget in budgets:
        # KubeRay's resources have no scale, of which a share or a maximum could be reckoned
        assert budget["spec"]["minAvailable"] == 1
        assert any(budget["spec"]["selector"]["matchLabels"].items() <= label.items() for label in labels)


def test_the_service_has_the_serve_config_but_for_where_it_is() -> None:
    service = yaml.safe_load(only("rayservice.yaml", "RayService")["serveConfigV2"])
    config = yaml.safe_load((ROOT / "serve" / "config.yaml").read_text())
    ServeDeploySchema.model_validate(service)
    assert service["http_options"].pop("host") == "0.0.0.0"
    config["http_options"].pop("host")
    arguments = service["applications"][0]["args"]
    assert arguments.pop("token_file"), "open to other machines, so clients have to have a token"
    assert arguments.pop("kb") != config["applications"][0]["args"].pop("kb")
    assert service == config


def test_workers_of_the_service_have_the_token_and_time_to_end_requests() -> None:
    spec = only("rayservice.yaml", "RayService")
    config = yaml.safe_load(spec["serveConfigV2"])["applications"][0]
    (group,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
    assert str(Path(config["args"]["token_file"]).parent) in {mount["mountPath"] for mount in mounts}
    grace_s = config["deployments"][0]["graceful_shutdown_timeout_s"]
    assert spec["rayClusterDeletionDelaySeconds"] > grace_s
    assert group["template"]["spec"]["terminationGracePeriodSeconds"] > grace_s


def test_probes_of_the_service_ask_raylet_gcs_and_the_proxy() -> None:
    """KubeRay gives other clusters the same by itself, but a hanging raylet of the endpoint must not be missed."""
    healthcheck = "http://127.0.0.1:52365/api/healthz"
    assert f'"{healthcheck}"' in (ROOT / "deploy" / "Dockerfile").read_text()
    head, worker = groups(only("rayservice.yaml", "RayService")["rayClusterConfig"])
    for group in (head, worker):
        (container,) = group["template"]["spec"]["containers"]
        for probe in (container["livenessProbe"], container["readinessProbe"]):
            assert healthcheck in " ".join(probe["exec"]["command"])
    assert "http://127.0.0.1:8000/-/healthz" in container["readinessProbe"]["exec"]["command"][-1]


def test_there_is_room_for_all_replicas_and_their_surge() -> None:
    spec = only("rayservice.yaml", "RayService")
    (deployment,) = yaml.safe_load(spec["serveConfigV2"])["applications"][0]["deployments"]
    (group,) = spec["rayClusterConfig"]["workerGroupSpecs"]
    cpus = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    most = deployment["autoscaling_config"]["max_replicas"] * (1 + deployment["max_surge_percent"] / 100)
    assert cpus * group["maxReplicas"] >= most * deployment["ray_actor_options"]["num_cpus"]
    assert group["minReplicas"] >= deployment["autoscaling_config"]["min_replicas"]


def job_commands(tmp_path: Path) -> list[list[str]]:
    """What the job's entrypoint runs, after the shells of KubeRay's submitter and of Ray have had it."""
    spec = only("rayjob.yaml", "RayJob")
    environment = yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    ray_runs = subprocess.list2cmdline(shlex.split(spec["entrypoint"]))
    path = f"{tmp_path}:/usr/bin:/bin"
    run = subprocess.run(["sh", "-c", ray_runs], env={**environment, "PATH": path}, capture_output=True, text=True)
    return [line.split() for line in run.stdout.splitlines()]


def test_the_job_runs_stages_with_options_that_they_have(tmp_path: Path) -> None:
    commands = job_commands(tmp_path)
    assert len(commands) == 1
    for script, *options in commands:
        path = ROOT / Path(script).relative_to("/app")
        text = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, cwd=ROOT).stdout
        assert all(f"{option} " in text for option in options if option.startswith("--"))
        assert options[:2] == ["--kb", "s3://your-bucket/kb/enwiki"]


def test_the_refresh_is_a_job_with_options_that_it_has() -> None:
    (container,) = refresh_pod()["spec"]["containers"]
    assert container["command"][:3] == ["ray", "job", "submit"]
    _, script, *options = container["args"]
    path = ROOT / Path(script).relative_to("/app")
    text = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, cwd=ROOT).stdout
    assert [option.partition("=")[0] for option in options] == ["--kb", "--dump", "--storage-path", "--serve"]
    assert all(f"{option.partition('=')[0]} " in text for option in options)


def test_the_refresh_runs_on_the_cluster_for_jobs_and_reaches_the_service_with_its_token() -> None:
    (container,) = refresh_pod()["spec"]["containers"]
    names = [manifests(name)[0]["metadata"]["name"] for name in ("raycluster.yaml", "rayservice.yaml")]
    cluster, service = (f"http://{name}-head-svc:8265" for name in names)
    assert cluster in container["command"]
    assert f"--serve={service}" in container["args"]
    (token,) = (each for each in container["env"] if each["name"] == "RAY_AUTH_TOKEN")
    secret = token["valueFrom"]["secretKeyRef"]["name"]
    assert all(each["authOptions"]["secretName"] == secret for each in CLUSTERS.values())


def test_one_refresh_runs_at_a_time_and_one_that_fails_is_tried_again() -> None:
    spec = only("refresh.yaml", "CronJob")
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] > 0
    assert len(spec["schedule"].split()) == 5


@pytest.mark.parametrize("path", [["spec"], ["spec", "jobTemplate", "spec", "template", "spec"]])
def test_a_misspelt_field_of_the_refresh_is_noticed(path: list[str], problems: Check) -> None:
    manifest = copy.deepcopy(manifests("refresh.yaml")[0])
    place: Any = manifest
    for key in path:
        place = place[key]
    place["restartPolice"] = "Never"
    assert any("'restartPolice' was unexpected" in problem for problem in problems(manifest))
