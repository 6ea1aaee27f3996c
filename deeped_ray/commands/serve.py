"""`deeped serve`: a knowledge base served on this machine."""

import argparse
import os

from deeped_ray.commands.options import Answer, add_kb, positive
from deeped_ray.demo import run_server
from deeped_ray.storage.location import Location


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("--port", type=positive, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--token-file", type=os.path.abspath, help="file with the token that clients have to send (default: none)"
    )
    parser.add_argument(
        "--writers-token-file",
        type=os.path.abspath,
        help="file with the token of clients that may change entities (default: none, nobody may)",
    )


def run(args: argparse.Namespace) -> Answer:
    run_server(
        Location(args.kb).address,
        port=args.port,
        token_file=args.token_file,
        writers_token_file=args.writers_token_file,
    )
    return None, ""
