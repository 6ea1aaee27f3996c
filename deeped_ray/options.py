"""Command-line options from a stage's config dataclass: one definition for code, `--help` and manifest.

A field `name: Annotated[int, "help text"] = 5` becomes `--name N`; tuples are repeatable options, booleans get `--no-`.
"""

import argparse
import dataclasses
import json
import logging
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from deeped_ray import logs
from deeped_ray.types import DeepEdError, redacted

logger = logging.getLogger(__name__)
Config = TypeVar("Config")
USER_ERROR = 2


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {redacted(message)}. See {self.prog} --help.\n")


def add_options(parser: argparse.ArgumentParser, config_class: type[Any]) -> None:
    """Add one option per field of the dataclass, in a group named by its docstring."""
    group = parser.add_argument_group(
        (config_class.__doc__ or config_class.__name__).strip().splitlines()[0].rstrip(".")
    )
    hints = get_type_hints(config_class, include_extras=True)
    for field in dataclasses.fields(config_class):
        kind, help_text = get_args(hints[field.name])
        kind = _without_none(kind)
        flag = "--" + field.name.replace("_", "-")
        default = field.default
        settings: dict[str, Any] = {"dest": field.name, "default": default, "help": help_text.replace("%", "%%")}
        if default not in (None, ()):
            settings["help"] += f" (default: {default})"
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
        elif get_origin(kind) is tuple:
            group.add_argument(flag, action="append", metavar=field.name.upper(), **{**settings, "default": None})
        elif get_origin(kind) is Literal:
            group.add_argument(flag, choices=get_args(kind), **settings)
        else:
            group.add_argument(
                flag, type=kind, metavar={int: "N", float: "X"}.get(kind, field.name.upper()), **settings
            )


def config_from(args: argparse.Namespace, config_class: type[Config]) -> Config:
    """The config that the parsed options describe; a value the dataclass refuses is a user's error."""
    fields = dataclasses.fields(config_class)  # type: ignore[arg-type]
    values = {field.name: getattr(args, field.name) for field in fields}
    for field in fields:
        if isinstance(field.default, tuple):
            values[field.name] = tuple(values[field.name] or field.default)
    return config_class(**values)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(option for option in get_args(kind) if option is not type(None))
    return kind


def run_job(
    stage: str,
    doc: str,
    configs: Sequence[type[Any]],
    run: Callable[..., dict[str, Any]],
) -> None:
    """A job's `main`: parse options, call `run(args, *configs)`, print one result line as JSON.

    Exits with 2 and one line on stderr for a user's error; anything else is a bug and keeps its traceback.
    """
    parser = OneLineParser(
        prog=f"jobs/{stage}.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kb",
        required=True,
        help="knowledge-base folder; an absolute path, on storage all nodes share, under `ray job submit`",
    )
    parser.add_argument(
        "--log-format",
        choices=logs.FORMATS,
        help="one line of text, or one JSON object, an event (default: what DEEPED_LOG says, or text)",
    )
    for config_class in configs:
        add_options(parser, config_class)
    args = parser.parse_args()
    start = time.monotonic()
    try:
        run_name = getattr(args, "run_name", None) or stage
        logs.start(logs.Labels(run=run_name, stage=stage, format=logs.format_of(args.log_format)))
        summary = run(args, *(config_from(args, config_class) for config_class in configs))
    except DeepEdError as error:
        if logs.is_json():
            logger.error("%s", error, extra={"fields": {"exception": type(error).__name__}})
        else:
            print(f"error: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except Exception:
        if not logs.is_json():
            raise
        logger.critical("the job failed", exc_info=True)
        sys.exit(1)
    print(redacted(json.dumps({"stage": stage, **summary, "seconds": round(time.monotonic() - start, 1)})))
