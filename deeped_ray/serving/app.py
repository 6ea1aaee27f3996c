"""The linker behind Ray Serve.

deeped deploy serve/config.yaml                          # on a running cluster; config.py makes the file for another KB
serve run deeped_ray.serving.app:build kb=/abs/KB        # the same settings, on 127.0.0.1:8000
"""

import logging
import sys

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from deeped_ray.serving.config import AppArgs, DeploymentSettings, read_token

# A knowledge base that cannot be opened does not heal, so a deployment that fails should fail soon. The default is three
# per replica. A config file cannot set it. A replica that is lost later is replaced however often that fails.
STARTS = 2


class LinkerDeployment:
    """One replica."""

    def __init__(self, args: AppArgs) -> None:
        # imported here: before the first replica starts, Serve imports this module in another process
        from deeped_ray.serving import memory

        self._tokens = read_token(args.token_file), read_token(args.writers_token_file)
        memory.hold_less()
        memory.compile_apart(args)
        from deeped_ray.serving.service import LinkingService

        self._service = LinkingService(args)
        memory.settle()
        _log_requests_once()
        sys.setswitchinterval(memory.SWITCH_S)

    def __serve_build_asgi_app__(self) -> FastAPI:
        from deeped_ray.serving.api import create_api

        token, writers_token = self._tokens
        return create_api(self._service, token=token, writers_token=writers_token)

    async def check_health(self) -> None:
        """Ray Serve restarts a replica for which this raises."""
        await self._service.check_in_thread()


def _log_requests_once() -> None:
    """Serve logs each request to its file, and again to stderr, which Ray's log monitor reads and sends to the head: 0.1 ms
    of processor time a request."""
    for handler in logging.getLogger("ray.serve").handlers:
        if type(handler) is logging.StreamHandler:
            handler.addFilter(lambda record: not getattr(record, "serve_access_log", False))


def build(args: AppArgs) -> Application:
    """The application, for `serve run deeped_ray.serving.app:build kb=...` and for a Serve config file."""
    # not as decorators: under its own name the class can be imported by replicas, and need not be pickled
    options = DeploymentSettings().options()
    deployment = serve.deployment(**options, max_constructor_retry_count=STARTS)(serve.ingress()(LinkerDeployment))
    return deployment.bind(args)
