"""The server on a private Ray of this machine, for `make serve`, `make demo` and tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deeped_ray.running.local_ray import LocalRay, free_ports
from deeped_ray.serving.config import AppArgs, config_for
from deeped_ray.serving.deploy import Serve, wait_until_healthy
from deeped_ray.serving.deploy import deploy as deploy_to


def serve_of(ray: LocalRay) -> Serve:
    """The Serve of a private Ray, for those who may read its token."""
    token = Path(ray.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    return Serve(ray.dashboard_url, token, check_alive=ray.check_alive)


def local_config(port: int, args: dict[str, Any], **deployment: Any) -> dict[str, Any]:
    """A Serve config. Settings of the deployment that are not given keep their defaults."""
    return config_for(AppArgs(**args), http={"port": port}, **deployment).model_dump(mode="json")


def deploy(
    ray: LocalRay,
    kb: Path | str,
    *,
    port: int | None = None,
    token_file: str | None = None,
    writers_token_file: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    **deployment: Any,
) -> str:
    """Serve a knowledge base on this machine until the Ray head ends; returns the address.

    Do not run `serve shutdown` before that: HAProxy would take 30 s to drain.
    """
    port = port or free_ports(1)[0]
    serve, url = serve_of(ray), f"http://127.0.0.1:{port}"
    args = {"kb": str(kb), "token_file": token_file, "writers_token_file": writers_token_file}
    deploy_to(serve, local_config(port, args, **deployment), say=say)
    wait_until_healthy(serve, url, is_here=True)
    return url
