"""Check a knowledge base, deploy it to a running Ray Serve, and go back to the last good version if that fails."""

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.http import open_url
from deeped_ray.serving.config import AppArgs
from deeped_ray.types import DeepEdError

ServeFile = Mapping[str, Any]
"""The content of a Serve config file."""
DEPLOY_TIMEOUT_S = 600.0
POLL_S = 0.2
PATIENCE_S = 120.0
"""For the first answers of a Ray that has just started."""
_ERROR_LINE = re.compile(r"^(?:ray\.exceptions\.\w+: )?(?:\w+\.)*\w*(?:Error|Exception): (.+)", re.MULTILINE)


def check(args: AppArgs) -> str:
    """Do what a replica does when it starts, and hash every file that it reads. Returns what was found, in one line."""
    base = KnowledgeBase(args.kb)
    base.check("corpus", "words", "vectors", "index", *(["linker"] if args.model != "prior" else []))
    from deeped_ray.serving import memory
    from deeped_ray.serving.service import LinkingService  # seconds of imports, which damaged files need not wait for

    memory.compile_apart(args)
    service = LinkingService(args)
    ids = ", ".join(f"{name} {service.version[name]}" for name in ("knowledge_base", "linker"))
    return f"{base}: {len(service.lookup.catalogue):,} entities, {ids}: files and self-check are good"


@dataclass(frozen=True)
class Serve:
    """The Ray Serve of one cluster, reached through Ray's dashboard."""

    address: str
    token: str | None = None
    """Ray's token, not that of the endpoint."""
    check_alive: Callable[[], None] = lambda: None
    """Raises an error if the cluster is gone for good."""

    @classmethod
    def from_environment(cls, address: str) -> "Serve":
        """With the token that Ray's own commands would use."""
        path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
        token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text() if path.is_file() else "")
        return cls(address.rstrip("/"), token.strip() or None)

    def applications(self) -> dict[str, Any]:
        """What runs, and how it is."""
        with self._ask() as reply:
            found: dict[str, Any] = json.load(reply)["applications"]
            return found

    def config(self) -> dict[str, Any]:
        """What runs, as the content of a Serve config file."""
        try:
            with self._ask() as reply:
                found = json.load(reply)
        except (OSError, HTTPException) as error:
            raise self.silence(error) from error
        applications = [each["deployed_app_config"] for each in found["applications"].values()]
        options = {name: found[name] for name in ("proxy_location", "http_options", "grpc_options") if found.get(name)}
        return {**options, "applications": [each for each in applications if each]}

    def put(self, config: ServeFile) -> None:
        """Like `serve deploy`: returns before the replicas are exchanged."""
        try:
            self._ask(json.dumps(config).encode()).close()
        except urllib.error.HTTPError as error:
            raise DeepEdError(f"Ray Serve refused the configuration: {_reason(error.read().decode())}") from error
        except (OSError, HTTPException) as error:
            raise self.silence(error) from error

    def silence(self, error: Exception) -> DeepEdError:
        """What to tell users if nobody answers."""
        self.check_alive()
        return DeepEdError(
            f"No Ray answers at {self.address} ({error}). Give its dashboard, --address, and its token, RAY_AUTH_TOKEN_PATH."
        )

    def _ask(self, data: bytes | None = None) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url, method = f"{self.address}/api/serve/applications/", "PUT" if data else "GET"
        request = urllib.request.Request(url, data, headers, method=method)
        return open_url(request, timeout_s=PATIENCE_S if data else 20.0)


def deploy(
    serve: Serve, config: ServeFile, *, timeout_s: float = DEPLOY_TIMEOUT_S, say: Callable[[str], None] = print
) -> None:
    """Deploy, and wait until the new version runs. If it fails, put back what ran before and raise an error."""
    good = _last_good(serve)
    failure = _put_and_wait(serve, config, timeout_s=timeout_s, say=say)
    if failure is None:
        return
    if not good:
        raise DeepEdError(f"The deployment failed, and no earlier version runs. {failure}")
    say("the new version failed: going back to the last good one")
    # Without this, Serve would go on with the old replicas, but would not replace one that dies.
    again = _put_and_wait(serve, {**config, "applications": good}, timeout_s=timeout_s, say=say)
    if again is not None:
        raise DeepEdError(f"The deployment failed: {failure} The last good version does not start either: {again}")
    raise DeepEdError(f"The deployment failed, and the last good version runs again. {failure}")


def _last_good(serve: Serve) -> list[Any]:
    """The configurations that Serve runs. One that never started is not worth going back to."""
    running = [each for each in _first_answer(serve).values() if each["status"] in ("RUNNING", "UNHEALTHY")]
    return [each["deployed_app_config"] for each in running if each["deployed_app_config"]]


def _first_answer(serve: Serve) -> dict[str, Any]:
    """What runs. A Ray that has just started closes connections, or answers 500, until its parts are there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return serve.applications()
        except (OSError, HTTPException) as error:
            if _is_refused(error) or getattr(error, "code", 500) < 500 or time.monotonic() > deadline:
                raise serve.silence(error) from error
        time.sleep(POLL_S)


def _is_refused(error: Exception) -> bool:
    return isinstance(getattr(error, "reason", None), ConnectionRefusedError)


def _put_and_wait(serve: Serve, config: ServeFile, *, timeout_s: float, say: Callable[[str], None]) -> str | None:
    """Why the configuration does not run, or None if it does."""
    serve.put(config)
    names = {application["name"] for application in config["applications"]}
    deadline, told = time.monotonic() + timeout_s, ""
    while time.monotonic() < deadline:
        serve.check_alive()
        with suppress(OSError, HTTPException):
            found = {name: each for name, each in serve.applications().items() if name in names}
            if (told_now := _replicas_of(found)) and told_now != told:
                told = told_now
                say(f"replicas: {told}")
            if failed := [each for each in found.values() if each["status"] == "DEPLOY_FAILED"]:
                return _reason("\n".join(_messages(failed[0])))
            if found.keys() == names and all(each["status"] == "RUNNING" for each in found.values()):
                return None
        time.sleep(POLL_S)
    return f"It did not run within {timeout_s:.0f} s (replicas: {told or 'none'}). Is there room for the replicas?"


def _replicas_of(applications: Mapping[str, Any]) -> str:
    """How many replicas are in which state, for people who wait."""
    deployments = [each for application in applications.values() for each in application["deployments"].values()]
    states = Counter(replica["state"].lower() for each in deployments for replica in each["replicas"])
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _messages(application: Mapping[str, Any]) -> list[str]:
    return [application["message"], *(each["message"] for each in application["deployments"].values())]


def _reason(message: str) -> str:
    """Our own error in Ray's report of it, which holds tracebacks; all of the report if there is none."""
    found = _ERROR_LINE.findall(message)
    return found[-1] if found else message.strip()


def wait_until_healthy(serve: Serve, url: str, *, is_here: bool, timeout_s: float = 60.0) -> None:
    """Wait until the proxies know the app as well. If `is_here` is false, a port that refuses is on another machine."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with open_url(f"{url}/healthz", timeout_s=5.0):
                return
        except (OSError, HTTPException) as error:
            if not is_here and _is_refused(error):
                return
        serve.check_alive()
        time.sleep(POLL_S)
    raise DeepEdError(
        f"The app runs, but {url}/healthz did not answer within {timeout_s:.0f} s. See the logs of Serve's proxies."
    )
