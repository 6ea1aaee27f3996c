"""Deployments that are checked first and rolled back if they fail, and a service whose files or whose Ray go away."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray import demo
from deeped_ray.cli import main
from deeped_ray.knowledge import parts
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running import local_ray
from deeped_ray.running.local_ray import LocalRay, descendants, free_ports, living, name_of
from deeped_ray.serving import config as config_module
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.deploy import Serve, check, deploy
from deeped_ray.serving.local import local_config
from deeped_ray.types import DeepEdError
from tests.conftest import copy_of
from tests.serving.conftest import USUAL, Served, wait_until
from tests.serving.test_faults import BODY, TOKEN, Load

DEEPED = (sys.executable, "-m", "deeped_ray.cli")


def deeped(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*DEEPED, *arguments], capture_output=True, text=True, check=False)


def flip(file: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture
def damaged(mini_kb: KnowledgeBase, tmp_path: Path) -> KnowledgeBase:
    """A copy with other bytes in a model, which only its checksum tells."""
    kb = copy_of(mini_kb, tmp_path / "damaged")
    (model,) = kb.root.glob("parts/linker-*/global.safetensors")
    flip(model)
    return kb


# -- before anything is deployed


def test_a_good_knowledge_base_passes_the_check(mini_kb: KnowledgeBase) -> None:
    assert check(AppArgs(kb=str(mini_kb))).endswith("files and self-check are good")


def test_a_large_file_with_other_bytes_fails_the_check(
    mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "HASH_ON_OPEN_BYTES", 0)  # every file counts as large
    kb = copy_of(mini_kb, tmp_path / "kb")
    flip(next(kb.root.glob("parts/vectors-*/vectors.npy")))
    with pytest.raises(DeepEdError, match=r"vectors\.npy does not match its checksum .*jobs/embed_entities\.py --kb"):
        check(AppArgs(kb=str(kb)))


def test_a_config_is_not_written_for_a_damaged_knowledge_base(
    damaged: KnowledgeBase, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["config", "--check", "--kb", str(damaged)])
    with pytest.raises(SystemExit, match=r"^error: .*global\.safetensors .* run jobs/train_linker\.py --kb \S+\.$"):
        config_module.main()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", ["serve", "deploy"])
def test_a_damaged_knowledge_base_is_refused_in_one_line(command: str, damaged: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "linker.yaml").write_text(json.dumps(local_config(8001, {"kb": str(damaged)})))
    ended = deeped(
        *(["serve", "--kb", str(damaged)] if command == "serve" else ["deploy", str(tmp_path / "linker.yaml")])
    )
    assert ended.returncode == 2
    assert re.fullmatch(r"error: .*global\.safetensors does not match .* run jobs/train_linker\.py .*\n", ended.stderr)


def test_a_port_in_use_is_refused_before_anything_else(served: Served) -> None:
    ended = deeped("serve", "--kb", "/nowhere", "--port", str(served.port))
    refused = f"error: Port {served.port} cannot be used: Address already in use. Give another --port.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", refused)


# -- deployments that fail


@pytest.fixture(autouse=True, scope="module")
def running(served: Served) -> None:
    """Replicas of the tests before may still answer while the usual ones start."""
    wait_until(lambda: served.serve.applications()["linker"]["status"] == "RUNNING", "the usual replicas run")


def answers(served: Served, body: object = BODY) -> bool:
    with suppress(httpx.HTTPError):  # while there is no replica, a request waits
        return httpx.post(f"{served.url}/link", json=body, trust_env=False, timeout=3).status_code == 200
    return False


def deploy_by_command(served: Served, folder: Path, *options: str, args: dict[str, Any], **deployment: Any) -> int:
    """The exit code of `deeped deploy`."""
    config = local_config(served.port, {"kb": str(served.kb)} | args, **USUAL | deployment)
    (folder / "linker.yaml").write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", served.ray.environment["RAY_AUTH_TOKEN_PATH"])
        return main(["deploy", str(folder / "linker.yaml"), "--address", served.ray.dashboard_url, *options])


def test_after_a_failed_deploy_the_old_version_runs_and_lost_replicas_are_replaced(
    served: Served, damaged: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Load.on(served.url, clients=1) as load:
        code = deploy_by_command(served, tmp_path, "--no-check", args={"kb": str(damaged)})
        load.wait_for(20)
    error = capsys.readouterr().err
    assert (code, load.failures) == (2, [])
    assert "the last good version runs again" in error
    assert "global.safetensors does not match its checksum" in error
    for _ in range(2):
        victim = min(served.ready())
        os.kill(victim, signal.SIGKILL)
        served.wait_for_replicas(1, without=victim)
    wait_until(lambda: answers(served), "the service answers")


def test_a_deploy_that_takes_too_long_is_taken_back(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    too_large = {"num_cpus": 1000}
    code = deploy_by_command(
        served, tmp_path, "--no-check", "--timeout", "3", args={"model": "local"}, ray_actor_options=too_large
    )
    assert code == 2
    assert "It did not run within 3 s" in capsys.readouterr().err
    assert served.serve.applications()["linker"]["deployed_app_config"]["args"]["model"] == "global"


def test_what_runs_already_is_deployed_at_once(served: Served, tmp_path: Path) -> None:
    wait_until(served.ready, "a replica is ready")
    before = served.ready()
    assert deploy_by_command(served, tmp_path, args={}) == 0
    assert before & served.ready()  # some may have come or gone with the load of other tests


def test_a_ray_that_is_not_there_is_named() -> None:
    with pytest.raises(
        DeepEdError, match=r"^No Ray answers at http://127\.0\.0\.1:\d+ .* Give its dashboard, --address"
    ):
        deploy(Serve(f"http://127.0.0.1:{free_ports(1)[0]}"), {"applications": [{"name": "linker"}]})


# -- what goes away while it is served


@contextmanager
def truncated(file: Path) -> Iterator[None]:
    content = file.read_bytes()
    os.truncate(file, 0)
    try:
        yield
    finally:
        file.write_bytes(content)


def test_a_truncated_file_is_named_and_the_service_returns_with_the_file(served: Served) -> None:
    names = itertools.count()

    def message() -> str:
        name = f"Zorblatt {next(names)}"
        answers(served, {"text": name, "spans": [[0, len(name)]]})  # a replica notices when it looks up a new name
        return str(served.serve.applications()["linker"]["deployments"]["LinkerDeployment"]["message"])

    (file,) = served.kb.glob("parts/corpus-*/mentions.hashes.npy")
    expected = rf"{file.name} has 0 bytes instead of {file.stat().st_size:,} "
    with truncated(file):
        wait_until(lambda: expected in message(), "a replica refuses the truncated file")
    wait_until(lambda: answers(served), "the service is back")


@contextmanager
def signals_as_before() -> Iterator[None]:
    """The command handles some by itself."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.last
def test_the_server_ends_when_its_raylet_does(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`deeped serve`, which is lent the Ray and the deployment of all tests here: another would take a minute."""
    deployed: list[Any] = []

    @contextmanager
    def lent(meanwhile: Callable[[], object]) -> Iterator[LocalRay]:
        meanwhile()
        try:
            yield served.ray
        finally:
            served.stop()

    def deploy(ray: LocalRay, kb: str, **options: Any) -> str:
        deployed.append((kb, options["port"], options["token_file"]))
        return served.url

    def lose_raylet_and_look(pids: Iterable[int]) -> list[int]:
        while raylets:  # when the command looks for the first time
            os.kill(raylets.pop(), signal.SIGKILL)
        return living(pids)

    monkeypatch.setattr(demo, "local_ray", lent)
    monkeypatch.setattr(demo, "deploy", deploy)
    monkeypatch.setattr(local_ray, "living", lose_raylet_and_look)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    family = descendants(served.ray.pid)
    raylets = [pid for pid in family if name_of(pid) == "raylet"]
    with signals_as_before():
        code = main(["serve", "--kb", str(served.kb), "--token-file", "token"])
    told, error = capsys.readouterr()
    assert deployed == [(str(served.kb), None, str(tmp_path / "token"))]
    assert f"Serving. Page: {served.url} " in told
    assert (code, living(family)) == (2, [])
    assert re.fullmatch(r"error: The private Ray is gone: .*raylet ended\. Start the command again\.\n", error)
