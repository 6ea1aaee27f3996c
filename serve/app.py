"""The linker behind Ray Serve.

serve deploy serve/config.yaml                # on a running cluster; set `kb` there first
serve run serve.app:build kb=/abs/KB          # the same settings, on 127.0.0.1:8000
"""

from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import LinkerKind
from deeped_ray.types import DeepEdError
from serve.api import create_api
from serve.service import LinkingService

CONFIG = Path(__file__).with_name("config.yaml")


class AppArgs(BaseModel):
    """Arguments of `build`, given as key=value to `serve run` or under `args` in the config file."""

    model_config = ConfigDict(extra="forbid")

    kb: str
    model: LinkerKind = "global"
    detection: dict[str, Any] = Field(default={}, description="fields of DetectionConfig: detector, thresholds")
    token_file: str | None = Field(default=None, description="file with the API token that clients must send")
    max_batch_mentions: int = Field(default=400, ge=1)
    max_waiting_mentions: int = Field(default=20_000, ge=1)


@serve.deployment
@serve.ingress()
class LinkerDeployment:
    """One replica."""

    def __init__(self, args: AppArgs) -> None:
        self._token = read_token(args.token_file)
        self._service = LinkingService(
            args.kb,
            args.model,
            detection=DetectionConfig(**args.detection),
            max_batch_mentions=args.max_batch_mentions,
            max_waiting_mentions=args.max_waiting_mentions,
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_api(self._service, token=self._token)

    async def check_health(self) -> None:
        """Ray Serve restarts a replica for which this raises."""
        await self._service.check_in_thread()


def read_token(path: str | None) -> str | None:
    """From a file, so that it stands in no config, log or list of processes."""
    if path is None:
        return None
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise DeepEdError(f"Cannot read the API token from {path}: {error.strerror}.") from error
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise DeepEdError(
            f"The API token in {path} has {len(token)} characters; it should have 16 at least, all ASCII."
        )
    return token


def settings() -> dict[str, Any]:
    """Of the deployment, from serve/config.yaml, so that they stand in one place."""
    config = yaml.safe_load(CONFIG.read_text())
    (deployment,) = config["applications"][0]["deployments"]
    return {name: value for name, value in deployment.items() if name != "name"}


def build(args: AppArgs) -> Application:
    """The application, for `serve run serve.app:build kb=...` and for a Serve config file."""
    application: Application = LinkerDeployment.options(**settings()).bind(args)  # type: ignore[attr-defined]
    return application
