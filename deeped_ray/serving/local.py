"""The server on a private Ray of this machine, for `make serve`, `make demo` and tests."""

import json
import os
import time
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from deeped_ray.running.http import open_url
from deeped_ray.running.local_ray import LocalRay, free_ports
from deeped_ray.serving.config import AppArgs, config_for
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout, or the folder of installed packages."""


def write_config(path: Path, port: int, args: dict[str, Any], **deployment: Any) -> Path:
    """Write a Serve config file; settings of the deployment that are not given keep their defaults."""
    settings = config_for(AppArgs(**args), http={"port": port}, **deployment).model_dump(mode="json")
    if (ROOT / "pyproject.toml").exists():  # a checkout: replicas run its code, whatever is installed
        path_first = f"{ROOT}{os.pathsep}${{PYTHONPATH}}"
        settings["applications"][0]["runtime_env"] = {"env_vars": {"PYTHONPATH": path_first}}
    path.write_text(json.dumps(settings))  # JSON is YAML too
    return path


def deploy(ray: LocalRay, kb: Path, *, port: int | None = None, **deployment: Any) -> str:
    """Serve a knowledge base on this machine until the Ray head ends; returns the address.

    Do not run `serve shutdown` before that: HAProxy would take 30 s to drain.
    """
    port = port or free_ports(1)[0]
    run_serve(ray, write_config(ray.log.with_name("serve.yaml"), port, {"kb": str(kb)}, **deployment))
    url = f"http://127.0.0.1:{port}"
    _wait_until_healthy(ray, url)
    return url


def run_serve(ray: LocalRay, config: Path) -> None:
    """What `serve deploy CONFIG` does, without starting another Python. If the app runs already, it is changed."""
    try:
        _ask_serve(ray, data=config.read_bytes()).close()
    except urllib.error.HTTPError as error:
        raise DeepEdError(f"Ray Serve refused {config}:\n{error.read().decode()}") from error


def _wait_until_healthy(ray: LocalRay, url: str, *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError), open_url(f"{url}/healthz", timeout_s=5.0):
            return
        if failure := _deploy_failure(ray):
            raise DeepEdError(f"Ray Serve could not deploy the app:\n{failure}")
        time.sleep(0.5)
    raise DeepEdError(f"{url}/healthz did not answer within {timeout_s:.0f} s. Ray's logs are below {ray.log.parent}.")


def _deploy_failure(ray: LocalRay) -> str | None:
    """Why Serve has given up on the app, if it has."""
    with suppress(OSError):
        for application in applications(ray).values():
            if application["status"] == "DEPLOY_FAILED":
                return "\n".join([application["message"], *(d["message"] for d in application["deployments"].values())])
    return None


def applications(ray: LocalRay) -> dict[str, Any]:
    """What Serve runs, as its dashboard reports it."""
    with _ask_serve(ray) as reply:
        found: dict[str, Any] = json.load(reply)["applications"]
        return found


def _ask_serve(ray: LocalRay, *, data: bytes | None = None) -> HTTPResponse:
    """Get what Serve runs, or put what it should run."""
    token = Path(ray.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    url, headers = f"{ray.dashboard_url}/api/serve/applications/", {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, data, headers, method="PUT" if data else "GET")
    return open_url(request, timeout_s=60.0 if data else 5.0)
