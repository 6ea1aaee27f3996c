"""How a job begins and ends: its command line, one JSON line with its result, and its exit code."""

import argparse
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from deeped_ray.extras import named
from deeped_ray.running import logs
from deeped_ray.types import DeepEdError, redacted

logger = logging.getLogger(__name__)
BUG, USER_ERROR = 1, 2


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {redacted(message)}. See {self.prog} --help.\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """An option a line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=120)


class JobParser(OneLineParser):
    """Ends a wrong command line with a result line too."""

    def __init__(self, stage: str, doc: str, prog: str) -> None:
        usage = f"{prog} --kb KB [options]"
        super().__init__(prog=prog, usage=usage, description=doc, formatter_class=_Help)
        self._stage = stage

    def error(self, message: str) -> NoReturn:
        try:
            super().error(message)
        finally:
            _print_result(self._stage, {"error": f"{message}. See {self.prog} --help."})


def run_to_result(stage: str, run: Callable[[], dict[str, Any]]) -> None:
    """Call `run` and print what it returns as the last line of stdout, as JSON.

    Exits with 2 and one line on stderr for a user's error, with 1 and a traceback for anything else, which is a bug. The
    last line is JSON then too, with a key `error`.
    """
    start, code = time.monotonic(), 0
    try:
        with named():
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
        # a task's exception has the worker's traceback in its message: its last line says what happened
        code, result = BUG, {"error": traceback.format_exception_only(error)[-1].strip().splitlines()[-1]}
    seconds = round(time.monotonic() - start, 1)
    _leave_ray()
    _print_result(stage, {**result, "seconds": seconds})
    if code:
        sys.exit(code)


def _leave_ray() -> None:
    """Otherwise what Ray still has to say, about nodes that died for instance, would come after the result."""
    if ray := sys.modules.get("ray"):  # a job that spreads no work has not loaded it
        ray.shutdown()


def _print_result(stage: str, result: dict[str, Any]) -> None:
    sys.stderr.flush()  # in a job's log both streams come together, and this is the last line
    print(redacted(json.dumps({"stage": stage, **result})), flush=True)
