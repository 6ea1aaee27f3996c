"""What commands have in common: options, their values, and settings by --set."""

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any, get_args

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import add_set, check_keys, flags_given, make, parse_sets, settings_of
from deeped_ray.running.console import stdout_style, table
from deeped_ray.types import DeepEdError, Entity, Mentions

MODELS = ("prior", "local", "global")
Answer = tuple[Any, str]
"""Data for --json, and the same as text."""


def add_kb(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kb",
        required=True,
        help="knowledge base: a folder, a file that `deeped pack` wrote, or the address of either",
    )


def add_kb_first(parser: argparse.ArgumentParser) -> None:
    """For commands about a knowledge base itself: KB, or --kb KB as everywhere else."""
    parser.add_argument("kb", metavar="KB", nargs="?", default=argparse.SUPPRESS, help="knowledge base")
    parser.add_argument("--kb", metavar="KB", default=argparse.SUPPRESS, help="the same")


def kb_of(args: argparse.Namespace) -> KnowledgeBase:
    if "kb" not in args:
        raise DeepEdError("Give a knowledge base: --kb KB.")
    return KnowledgeBase(args.kb)


def add_detection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mentions",
        choices=get_args(Mentions),
        default=argparse.SUPPRESS,
        help="what to find: names, as in news, or all that Wikipedia would link (default: names)",
    )
    add_set(parser, "--set mention_threshold=0.3 (how mentions are found)")


def config_of(args: argparse.Namespace, *configs: type[Any]) -> list[Any]:
    """What flags and --set say of these dataclasses."""

    known = [name for config in configs for name in settings_of(config)]
    given = parse_sets(args.set)
    check_keys(given, {}, top=known)
    return [make(config, {**flags_given(args, config), **given}) for config in configs]


def entity_table(headers: Sequence[str], rows: Sequence[Sequence[object]], entities: Sequence[Entity]) -> str:
    """A table whose first column is entities. Their Wikidata ids come second, if they have any."""
    ids = [entity.wikidata or "" for entity in entities]
    if any(ids):
        headers = [headers[0], "wikidata", *headers[1:]]
        rows = [(row[0], number, *row[1:]) for row, number in zip(rows, ids, strict=True)]
    return table(headers, rows, style=stdout_style())


def positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive number")
    return int(value)


def share(value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(value) <= 1:
            return float(value)
    raise argparse.ArgumentTypeError(f"{value!r} does not lie between 0 and 1")


def spans(value: str) -> list[tuple[int, int]]:
    try:
        pairs = [part.split(":") for part in value.split(",")]
        return [(int(start), int(end)) for start, end in pairs]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not START:END,START:END,... as in 0:8,14:23") from None
