"""How the linker is served, each setting with its reason; serve/config.yaml is made from this.

make config                                                    # write serve/config.yaml anew
python -m deeped_ray.serving.config --kb s3://bucket/kb > linker.yaml       # the same, for a knowledge base of one's own
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from deeped_ray.linking.linker import LinkerKind

WIDTH = 120
HEADER = """\
# How the linker is served:  serve deploy serve/config.yaml
# Made from serve/config.py by `make config`: change settings there. For a knowledge base of your own,
#   python -m deeped_ray.serving.config --kb s3://bucket/kb --host 0.0.0.0 --token-file /run/secrets/deeped-token > linker.yaml"""


class Settings(BaseModel):
    """A description is the reason, and stands beside the setting in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AppArgs(Settings):
    """Arguments of `serve.app:build`, given as key=value to `serve run` or under `args` in the config file."""

    kb: str = Field(
        description="An s3:// or gs:// address, or an absolute path that all nodes of the cluster share. A new "
        "version of the knowledge base is swapped in by `serve deploy` with its address: no request fails."
    )
    model: LinkerKind = Field(default="global", description="or local, or prior")
    detection: dict[str, Any] = Field(
        default={},
        description="who finds mentions, and thresholds: `deeped detect --help`",
        examples=[{"detector": "spacy", "spacy_model": "en_core_web_sm"}],
    )
    token_file: str | None = Field(
        default=None,
        description="clients then send Authorization: Bearer TOKEN",
        examples=["/run/secrets/deeped-token"],
    )
    max_batch_mentions: int = Field(
        default=400, ge=1, description="linked at once, from all waiting requests: about 120 ms of work"
    )
    max_waiting_mentions: int = Field(
        default=20_000, ge=1, description="about 6 s of work; beyond it a replica answers 503 with Retry-After"
    )


class Backpressure(Settings):
    status_code: int = 503
    retry_after_s: int = 1


class Autoscaling(Settings):
    min_replicas: int = Field(
        default=2, description="with a single one requests would wait, for some 10 s, if it is lost"
    )
    max_replicas: int = 8
    target_ongoing_requests: int = Field(
        default=16,
        description="A replica answers about 9 documents of 20 mentions in 100 ms; with 16 waiting it is time for another.",
    )
    upscale_delay_s: int = Field(
        default=10, description="a replica is ready within 15 s, so do not wait long (default 30)"
    )
    downscale_delay_s: int = Field(default=300, description="and keep it over short breaks (default 600)")


class ActorOptions(Settings):
    num_cpus: int = Field(
        default=1, description="linking keeps one core busy; more threads gain less than more replicas"
    )


class DeploymentSettings(Settings):
    """Replicas, their limits and timeouts."""

    name: str = "LinkerDeployment"
    max_ongoing_requests: int = Field(
        default=64,
        description="Requests that a replica takes at once. Far more than the default of 5: they wait in the replica's "
        "own queue, where batches are formed across them; a replica that gets only 5 forms batches of 5.",
    )
    max_queued_requests: int = Field(
        default=200,
        description="Beyond these each proxy (each replica, behind HAProxy) answers 503 at once, rather than let clients "
        "wait and time out.",
    )
    backpressure_config: Backpressure = Backpressure()
    autoscaling_config: Autoscaling = Autoscaling()
    max_surge_percent: int = Field(
        default=50,
        description="A new version starts before the old one stops (default 0: after). Needs room for that many more "
        "replicas; without it the old version goes on.",
    )
    ray_actor_options: ActorOptions = ActorOptions()
    health_check_period_s: int = Field(
        default=10, description="links a known sentence; three failures in a row restart the replica"
    )
    health_check_timeout_s: int = Field(
        default=30, description="a replica that works through a very long text is busy, not ill"
    )
    graceful_shutdown_wait_loop_s: int = 1
    graceful_shutdown_timeout_s: int = Field(
        default=70, description="a redeploy lets running requests end; more than request_timeout_s"
    )

    def options(self) -> dict[str, Any]:
        """For `Deployment.options`."""
        return self.model_dump(exclude={"name"})


class HttpOptions(Settings):
    host: str = Field(
        default="127.0.0.1",
        description="0.0.0.0 lets other machines in: then give token_file below, or a proxy with authentication",
    )
    port: int = 8000
    request_timeout_s: int = Field(
        default=60,
        description="longer than the largest request takes (10,000 mentions: about 3 s) behind a full queue (6 s)",
    )


class LoggingSettings(Settings):
    encoding: str = "JSON"


class ApplicationSettings(Settings):
    name: str = "linker"
    route_prefix: str = "/"
    import_path: str = "serve.app:build"
    args: AppArgs
    deployments: tuple[DeploymentSettings, ...] = (DeploymentSettings(),)


class ServeConfig(Settings):
    """The whole of a Serve config file."""

    http_options: HttpOptions = HttpOptions()
    logging_config: LoggingSettings = LoggingSettings()
    applications: tuple[ApplicationSettings, ...]


def config_for(args: AppArgs, *, host: str = "127.0.0.1") -> ServeConfig:
    return ServeConfig(http_options=HttpOptions(host=host), applications=(ApplicationSettings(args=args),))


def render(config: ServeConfig) -> str:
    """As YAML, every reason beside its setting or above it."""
    return "\n\n".join([HEADER, *_blocks(config)]) + "\n"


def _blocks(settings: Settings) -> Iterator[str]:
    """The lines of each field; one that is not set is shown as an example, commented out."""
    for name, field in type(settings).model_fields.items():
        value, reason = getattr(settings, name), field.description or ""
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
    """Beside the setting where there is room for it; settings stand at most 10 columns in."""
    if not reason:
        return line
    if len(line) + len(reason) + 4 <= WIDTH - 10:
        return f"{line}  # {reason}"
    return "\n".join([*textwrap.wrap(f"# {reason}", WIDTH - 10, subsequent_indent="# "), line])


def _plain(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=WIDTH).removesuffix("...\n").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kb", default="kb/mini", help="address or path of the knowledge base (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: %(default)s)")
    parser.add_argument("--token-file", help="file, on every node, with the token that clients must send")
    parser.add_argument("--output", type=Path, help="where to write to, instead of to the terminal")
    options = parser.parse_args()
    text = render(config_for(AppArgs(kb=options.kb, token_file=options.token_file), host=options.host))
    if options.output:
        options.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
