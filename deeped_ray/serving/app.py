"""The linker behind Ray Serve.

serve deploy serve/config.yaml                           # on a running cluster; config.py makes the file for another KB
serve run deeped_ray.serving.app:build kb=/abs/KB        # the same settings, on 127.0.0.1:8000
"""

from pathlib import Path

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs, DeploymentSettings
from deeped_ray.serving.service import LinkingService
from deeped_ray.types import DeepEdError


class LinkerDeployment:
    """One replica."""

    def __init__(self, args: AppArgs) -> None:
        self._token, self._service = read_token(args.token_file), LinkingService(args)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_api(self._service, token=self._token)

    async def check_health(self) -> None:
        """Ray Serve restarts a replica for which this raises."""
        await self._service.check_in_thread()


def read_token(path: str | None) -> str | None:
    """The token is in a file, so that no config, log or process list shows it."""
    if path is None:
        return None
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise DeepEdError(f"Cannot read the API token from {path}: {error.strerror}.") from error
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise DeepEdError(f"The API token in {path} has {len(token)} characters. It needs at least 16, all ASCII.")
    return token


def build(args: AppArgs) -> Application:
    """The application, for `serve run deeped_ray.serving.app:build kb=...` and for a Serve config file."""
    # not as decorators: under its own name the class can be imported by replicas, and need not be pickled
    deployment = serve.deployment(**DeploymentSettings().options())(serve.ingress()(LinkerDeployment))
    return deployment.bind(args)
