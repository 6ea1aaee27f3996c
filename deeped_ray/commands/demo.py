"""`deeped demo`: the whole path on this machine."""

import argparse
import os
import sys
from pathlib import Path

from deeped_ray.commands.options import Answer, positive
from deeped_ray.demo import run_demo


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge-base folder (default: kb/mini)")
    parser.add_argument("--port", type=positive, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--once", action="store_true", help="stop when all is shown (also ONCE=1, or without a terminal)"
    )


def run(args: argparse.Namespace) -> Answer:
    is_once = args.once or os.environ.get("ONCE") or not sys.stdout.isatty()
    run_demo(args.kb.absolute(), port=args.port, keep_serving=not is_once)
    return None, ""
