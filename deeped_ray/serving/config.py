"""The settings of the server, each with its reason. serve/config.yaml is made from them.

make config                                                            # update serve/config.yaml
python -m deeped_ray.serving.config --kb s3://bucket/kb > linker.yaml  # the same for your own knowledge base
python -m deeped_ray.serving.config --kb KB --check > linker.yaml      # only if KB can be served
python -m deeped_ray.serving.config --kb de=KB1 --kb ja=KB2 > both.yaml  # several: /de/link, /ja/link
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from deeped_ray.types import DeepEdError, LinkerKind

WIDTH = 120
_NAMED = re.compile(r"([a-z][a-z0-9-]{0,30})=(.+)", re.DOTALL)
HEADER = """\
# Serves the linker:  deeped deploy serve/config.yaml
# Made by `make config` from deeped_ray/serving/config.py: change settings there. For your own knowledge base:
#   python -m deeped_ray.serving.config --kb s3://bucket/kb --host 0.0.0.0 --token-file /run/secrets/deeped-token > linker.yaml"""


class Settings(BaseModel):
    """The docstring of a setting is its reason, and becomes the comment beside it in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class AppArgs(Settings):
    """Arguments of `build`: key=value for `serve run`, or under `args` in the config file."""

    kb: str
    """An s3:// or gs:// address, or an absolute path that all nodes of the cluster share. To replace the knowledge base,
    run `deeped deploy` with the new address: no request fails."""
    model: LinkerKind = "global"
    """or local, or prior"""
    detection: dict[str, Any] = Field(default={}, examples=[{"detector": "spacy", "spacy_model": "en_core_web_sm"}])
    """how mentions are found: `deeped detect --help`"""
    token_file: str | None = Field(default=None, examples=["/run/secrets/deeped-token"])
    """clients then send Authorization: Bearer TOKEN"""
    writers_token_file: str | None = Field(default=None, examples=["/run/secrets/deeped-writers-token"])
    """clients that send this token may change entities; without it, nobody may"""
    max_batch_mentions: PositiveInt = 200
    """Linked at once, from all waiting requests: about 80 ms of work. A request with more is long: it runs in slices of 20
    ms, between the batches of short ones."""
    max_waiting_mentions: PositiveInt = 20_000
    """About 8 s of work, of short requests and of long ones. If more would wait, a replica answers 503 with Retry-After. A
    text whose mentions are not found yet counts by its length."""
    max_work_s: PositiveFloat = 12.0
    """Processor time that one request may ask for. It is expected from a sample of the request, which is mostly true
    within 50%; more is refused with 413 before it is done."""
    max_reply_mb: PositiveFloat = 8.0
    """about 3,500 mentions with all candidates and reasons; more is refused with 413 before they are linked"""
    deadline_s: PositiveFloat = 30.0
    """a request that is not answered by then gets 408"""


class Backpressure(Settings):
    status_code: int = 503
    retry_after_s: int = 1


class Autoscaling(Settings):
    min_replicas: int = 2
    """if a single replica died, requests would wait about 10 s for the next"""
    max_replicas: int = 8
    target_ongoing_requests: int = 16
    """A replica answers about 9 documents of 20 mentions in 100 ms. With 16 waiting, start another."""
    upscale_delay_s: int = 10
    """a replica is ready within 15 s, so do not wait long (default 30)"""
    downscale_delay_s: int = 300
    """keep a replica over short breaks (default 600)"""


class ActorOptions(Settings):
    num_cpus: int = 1
    """linking keeps one core busy; more threads gain less than more replicas"""


class DeploymentSettings(Settings):
    """Replicas, their limits and timeouts."""

    name: str = "LinkerDeployment"
    max_ongoing_requests: int = 64
    """Requests that a replica takes at once. Far more than the default of 5: they wait in the replica's own queue, which
    forms batches across them. With only 5 requests, batches would have 5."""
    max_queued_requests: int = 200
    """If more would wait, the proxy (behind HAProxy: the replica) answers 503 at once. Otherwise clients would wait and
    time out."""
    backpressure_config: Backpressure = Backpressure()
    autoscaling_config: Autoscaling = Autoscaling()
    max_surge_percent: int = 50
    """A new version starts before the old one stops (default 0: after). Needs room for that many more replicas. Without
    room, the old version keeps running."""
    ray_actor_options: ActorOptions = ActorOptions()
    health_check_period_s: int = 10
    """links a known text; three failures in a row restart the replica"""
    health_check_timeout_s: int = 30
    """a replica that works on a very long text is busy, not ill"""
    graceful_shutdown_wait_loop_s: int = 1
    graceful_shutdown_timeout_s: int = 70
    """a redeploy lets running requests finish; more than request_timeout_s"""

    def options(self) -> dict[str, Any]:
        """For `serve.deployment`."""
        return self.model_dump(exclude={"name"})


class HttpOptions(Settings):
    host: str = "127.0.0.1"
    """0.0.0.0 lets other machines in: then set token_file below, or use a proxy that authenticates"""
    port: int = 8000
    request_timeout_s: int = 60
    """longer than deadline_s below, by which a replica answers itself"""


class LoggingSettings(Settings):
    encoding: str = "JSON"


class ApplicationSettings(Settings):
    name: str = "linker"
    route_prefix: str = "/"
    import_path: str = "deeped_ray.serving.app:build"
    args: AppArgs
    deployments: tuple[DeploymentSettings, ...]


class ServeConfig(Settings):
    """A whole Serve config file."""

    http_options: HttpOptions
    logging_config: LoggingSettings = LoggingSettings()
    applications: tuple[ApplicationSettings, ...]


def config_for(args: AppArgs, *, http: dict[str, Any] | None = None, **deployment: Any) -> ServeConfig:
    """`http` and `deployment` change single settings."""
    application = ApplicationSettings(args=args, deployments=(DeploymentSettings(**deployment),))
    return ServeConfig(http_options=HttpOptions(**http or {}), applications=(application,))


def config_for_several(
    args: Mapping[str, AppArgs], *, http: dict[str, Any] | None = None, **deployment: Any
) -> ServeConfig:
    """An application for each knowledge base, below a path of its own: they are deployed and fail one by one."""
    deployments = (DeploymentSettings(**deployment),)
    applications = (
        ApplicationSettings(name=f"linker-{name}", route_prefix=f"/{name}", args=each, deployments=deployments)
        for name, each in args.items()
    )
    return ServeConfig(http_options=HttpOptions(**http or {}), applications=tuple(applications))


def by_name(given: Sequence[str]) -> dict[str, str]:
    """`["de=KB1", "ja=KB2"]` by name; one knowledge base may do without."""
    if len(given) == 1 and not _NAMED.fullmatch(given[0]):
        return {"": given[0]}
    found: dict[str, str] = {}
    for each in given:
        named = _NAMED.fullmatch(each)
        if not named or named[1] in found:
            raise DeepEdError(
                f"Give several knowledge bases as --kb de=KB1 --kb ja=KB2, each with a name: found {each!r}."
            )
        found[named[1]] = named[2]
    return found


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


def render(config: ServeConfig) -> str:
    """YAML with every reason beside its setting, or above it."""
    return "\n\n".join([HEADER, *_blocks(config)]) + "\n"


def _blocks(settings: Settings) -> Iterator[str]:
    """The lines of each field. A field that is not set becomes a commented example."""
    for name, field in type(settings).model_fields.items():
        value, reason = getattr(settings, name), " ".join((field.description or "").split())
        if isinstance(value, Settings):
            yield f"{name}:\n" + textwrap.indent("\n".join(_blocks(value)), "  ")
        elif isinstance(value, tuple):
            items = (textwrap.indent("\n".join(_blocks(item)), "    ") for item in value)
            yield "\n".join([f"{name}:", *(f"  - {item.strip()}" for item in items)])
        elif value in (None, {}):
            (example,) = field.examples or [value]
            yield _with_reason(f"# {name}: {_plain(example)}", reason)
        else:
            yield _with_reason(f"{name}: {_plain(value)}", reason)


def _with_reason(line: str, reason: str) -> str:
    """Beside the setting if there is room. Settings are indented by at most 10 columns."""
    if not reason:
        return line
    if len(line) + len(reason) + 4 <= WIDTH - 10:
        return f"{line}  # {reason}"
    return "\n".join([*textwrap.wrap(f"# {reason}", WIDTH - 10, subsequent_indent="# "), line])


def _plain(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=WIDTH).removesuffix("...\n").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kb",
        action="append",
        help="address or path of the knowledge base (default: kb/mini); several as de=KB1, each below /de",
    )
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: %(default)s)")
    parser.add_argument("--token-file", help="file, on every node, with the token that clients have to send")
    parser.add_argument(
        "--check", action="store_true", help="first open and check the knowledge base, as a replica would"
    )
    parser.add_argument("--output", type=Path, help="file to write, instead of the terminal")
    options = parser.parse_args()
    try:
        kbs = by_name(options.kb or ["kb/mini"])
        args = {name: AppArgs(kb=kb, token_file=options.token_file) for name, kb in kbs.items()}
        if options.check:
            from deeped_ray.serving.deploy import check  # imports the linker, which writing a file does not need

            for each in args.values():
                print(check(each), file=sys.stderr)
    except DeepEdError as error:
        sys.exit(f"error: {error}")
    http = {"host": options.host}
    text = render(config_for(args[""], http=http) if "" in args else config_for_several(args, http=http))
    if options.output:
        options.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
