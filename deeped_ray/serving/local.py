"""The service on a private Ray of this machine, as `make serve` and `make demo` run it."""

import json
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from deeped_ray.running.local_ray import LocalRay, executable, free_ports, open_url
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).resolve().parent.parent.parent


def write_config(path: Path, port: int, args: dict[str, Any], **deployment: Any) -> Path:
    """serve/config.yaml with another port, other arguments of the app and other settings of the deployment."""
    config = yaml.safe_load((ROOT / "serve" / "config.yaml").read_text())
    config["http_options"]["port"] = port
    (application,) = config["applications"]
    application["args"] |= args
    settings = application["deployments"][0] | deployment
    application["deployments"] = [{name: value for name, value in settings.items() if value is not None}]
    path.write_text(yaml.safe_dump(config))
    return path


def deploy(ray: LocalRay, kb: Path, *, port: int | None = None, **deployment: Any) -> str:
    """Serve a knowledge base on this machine, at the address returned, until the head ends.

    `serve shutdown` before that would drain HAProxy for 30 s.
    """
    port = port or free_ports(1)[0]
    run_serve(ray, write_config(ray.log.with_name("serve.yaml"), port, {"kb": str(kb)}, **deployment))
    url = f"http://127.0.0.1:{port}"
    _wait_until_healthy(ray, url)
    return url


def run_serve(ray: LocalRay, config: Path) -> None:
    """`serve run CONFIG`: what runs already is changed to what the file says."""
    environment = {**ray.environment, "RAY_ADDRESS": ray.gcs_address}
    command = [executable("serve"), "run", str(config), "--working-dir", str(ROOT), "--non-blocking"]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if run.returncode:
        raise DeepEdError(f"`serve run` failed:\n{run.stdout}")


def _wait_until_healthy(ray: LocalRay, url: str, *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError), open_url(f"{url}/healthz", timeout_s=5.0):
            return
        if failure := _deploy_failure(ray):
            raise DeepEdError(f"The app was not deployed:\n{failure}")
        time.sleep(0.5)
    raise DeepEdError(f"{url}/healthz did not answer within {timeout_s:.0f} s. Ray's logs are below {ray.log.parent}.")


def _deploy_failure(ray: LocalRay) -> str | None:
    """Why Serve has given up on the app, if it has."""
    token = Path(ray.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    request = urllib.request.Request(
        f"{ray.dashboard_url}/api/serve/applications/", headers={"Authorization": f"Bearer {token}"}
    )
    with suppress(OSError), open_url(request, timeout_s=5.0) as reply:
        for application in json.load(reply)["applications"].values():
            if application["status"] == "DEPLOY_FAILED":
                return "\n".join([application["message"], *(d["message"] for d in application["deployments"].values())])
    return None
