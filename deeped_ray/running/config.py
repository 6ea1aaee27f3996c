"""Command-line options from a stage's config dataclass: one definition for code, `--help` and manifest.

A field `name: Annotated[int, "help text"] = 5` becomes `--name N`; tuples are repeatable options, booleans get `--no-`.
"""

import argparse
import dataclasses
import json
import logging
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from deeped_ray.running import logs
from deeped_ray.types import DeepEdError, redacted

logger = logging.getLogger(__name__)
Config = TypeVar("Config")
BUG, USER_ERROR = 1, 2
_AS_THEY_ARE: Mapping[str, str] = types.MappingProxyType({})


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {redacted(message)}. See {self.prog} --help.\n")


def add_options(
    parser: argparse.ArgumentParser, config_class: type[Any], *, renamed: Mapping[str, str] = _AS_THEY_ARE
) -> None:
    """Add one option per field of the dataclass, in a group named by its docstring; `renamed` are fields under other names."""
    group = parser.add_argument_group(
        (config_class.__doc__ or config_class.__name__).strip().splitlines()[0].rstrip(".")
    )
    hints = get_type_hints(config_class, include_extras=True)
    for field in dataclasses.fields(config_class):
        kind, help_text = get_args(hints[field.name])
        kind = _without_none(kind)
        name = renamed.get(field.name, field.name)
        flag = "--" + name.replace("_", "-")
        default = field.default
        settings: dict[str, Any] = {"dest": name, "default": default, "help": help_text.replace("%", "%%")}
        if default not in (None, ()):
            settings["help"] += f" (default: {default})"
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
        elif get_origin(kind) is tuple:
            group.add_argument(flag, action="append", metavar=name.upper(), **{**settings, "default": None})
        elif get_origin(kind) is Literal:
            group.add_argument(flag, choices=get_args(kind), **settings)
        else:
            group.add_argument(flag, type=kind, metavar={int: "N", float: "X"}.get(kind, name.upper()), **settings)


def config_from(
    args: argparse.Namespace, config_class: type[Config], *, renamed: Mapping[str, str] = _AS_THEY_ARE
) -> Config:
    """The config that the parsed options describe; a value the dataclass refuses is a user's error."""
    fields = dataclasses.fields(config_class)  # type: ignore[arg-type]
    values = {field.name: getattr(args, renamed.get(field.name, field.name)) for field in fields}
    for field in fields:
        if isinstance(field.default, tuple):
            values[field.name] = tuple(values[field.name] or field.default)
    return config_class(**values)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(option for option in get_args(kind) if option is not type(None))
    return kind


class _JobParser(OneLineParser):
    """Ends a wrong command line with a result line too."""

    def __init__(self, stage: str, doc: str) -> None:
        super().__init__(prog=f"jobs/{stage}.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._stage = stage

    def error(self, message: str) -> NoReturn:
        try:
            super().error(message)
        finally:
            _print_result(self._stage, {"error": f"{message}. See {self.prog} --help."})


def run_job(
    stage: str,
    doc: str,
    configs: Sequence[type[Any]],
    run: Callable[..., dict[str, Any]],
) -> None:
    """A job's `main`: parse options, call `run(args, *configs)`, print one result line as JSON.

    Exits with 2 and one line on stderr for a user's error, with 1 and a traceback for anything else, which is a bug; the
    last line of stdout is JSON then too, with a key `error`.
    """
    parser = job_parser(stage, doc)
    for config_class in configs:
        add_options(parser, config_class)
    args = parser.parse_args()
    run_to_result(stage, args, lambda: run(args, *(config_from(args, config_class) for config_class in configs)))


def job_parser(stage: str, doc: str) -> argparse.ArgumentParser:
    """With the option that all jobs have."""
    parser = _JobParser(stage, doc)
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
    return parser


def run_to_result(stage: str, args: argparse.Namespace, run: Callable[[], dict[str, Any]]) -> None:
    """Call `run`, print what it returns or raises as the last line, and exit accordingly."""
    start = time.monotonic()
    code = 0
    try:
        run_name = getattr(args, "run_name", None) or stage
        logs.start(logs.Labels(run=run_name, stage=stage, format=logs.format_of(args.log_format)))
        result = run()
    except DeepEdError as error:
        if logs.is_json():
            logger.error("%s", error, extra={"fields": {"exception": type(error).__name__}})
        else:
            print(f"error: {error}", file=sys.stderr)
        code, result = USER_ERROR, {"error": str(error)}
    except Exception as error:
        if logs.is_json():
            logger.critical("the job failed", exc_info=True)
        else:
            traceback.print_exc()
        # of a task's exception, which has the worker's traceback in its message, the last line
        code, result = BUG, {"error": traceback.format_exception_only(error)[-1].strip().splitlines()[-1]}
    seconds = round(time.monotonic() - start, 1)
    _leave_ray()
    _print_result(stage, {**result, "seconds": seconds})
    if code:
        sys.exit(code)


def _leave_ray() -> None:
    """Else what Ray still has to tell, of nodes that died for instance, would come after the result."""
    if ray := sys.modules.get("ray"):  # a job that spreads no work has not loaded it
        ray.shutdown()


def _print_result(stage: str, result: dict[str, Any]) -> None:
    sys.stderr.flush()  # in a job's log both streams come together, and this is the last line
    print(redacted(json.dumps({"stage": stage, **result})), flush=True)
