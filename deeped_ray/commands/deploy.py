"""`deeped deploy`: a Serve config file put on a running cluster, and taken back if it fails."""

import argparse
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import ValidationError

from deeped_ray.commands.options import Answer, positive
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.deploy import Serve, check, deploy, wait_until_healthy
from deeped_ray.types import DeepEdError

APP = "deeped_ray.serving.app:build"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a Serve config file, such as serve/config.yaml")
    address = os.environ.get("RAY_ADDRESS", "")
    default = address if address.startswith("http") else "http://127.0.0.1:8265"
    parser.add_argument("--address", default=default, help=f"Ray's dashboard (default: {default}, or RAY_ADDRESS)")
    parser.add_argument("--no-check", action="store_true", help="do not open the knowledge base on this machine first")
    parser.add_argument(
        "--timeout", type=positive, default=600, metavar="S", help="go back after so many seconds (default: 600)"
    )


def run(args: argparse.Namespace) -> Answer:
    config = _read(args.config)
    ours = [application for application in config["applications"] if application.get("import_path") == APP]
    for application in [] if args.no_check else ours:
        print(check(_arguments(application["args"])), flush=True)
    serve = Serve.from_environment(args.address)
    deploy(serve, config, timeout_s=float(args.timeout))
    port = config.get("http_options", {}).get("port", 8000)
    for path in {application.get("route_prefix", "/").rstrip("/") for application in ours} or {""}:
        wait_until_healthy(serve, f"http://{urlsplit(args.address).hostname}:{port}{path}", is_here=False)
    return None, f"{args.config} runs."


def _arguments(given: dict[str, Any]) -> AppArgs:
    try:
        return AppArgs(**given)
    except ValidationError as error:
        raise DeepEdError(f"The arguments of the app are wrong: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeepEdError(f"Cannot read {path}: {error}.") from error
    if not isinstance(config, dict) or not config.get("applications"):
        raise DeepEdError(f"{path} is not a Serve config file: it names no applications. See serve/config.yaml.")
    return config
