"""`deeped versions`: the versions of a knowledge base, the latest first."""

import argparse

from deeped_ray.commands.options import Answer, add_kb_first, kb_of
from deeped_ray.knowledge.versions import Version, versions
from deeped_ray.running.console import stdout_style, table


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb_first(parser)


def run(args: argparse.Namespace) -> Answer:
    found = versions(kb_of(args))
    columns = ["version", "state", "made", "dump", "accuracy", "before"]
    text = table(columns, [_row(each) for each in found], style=stdout_style())
    return [each._asdict() for each in found], text


def _row(version: Version) -> tuple[object, ...]:
    scores = [version.check.get(name) for name in ("accuracy", "accuracy_before")]
    shown = ["" if score is None else f"{score:.2%}" for score in scores]
    return (version.number, version.state, version.made, ", ".join(version.dumps), *shown)
