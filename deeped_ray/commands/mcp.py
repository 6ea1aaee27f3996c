"""`deeped mcp`: tools for a language model on this machine, over standard input and output."""

import argparse

from deeped_ray.commands.options import Answer, add_kb


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)


def run(args: argparse.Namespace) -> Answer:
    from deeped_ray.linking.opened import open as open_kb
    from deeped_ray.serving.doors.mcp import run_stdio  # imports FastAPI

    kb = open_kb(args.kb)
    kb.linker()  # what is missing is told now, not with the first question
    run_stdio(kb)
    return None, ""
