"""What goes wrong, as HTTP says it: a status and a reason, never a traceback."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from deeped_ray.serving.batcher import OverloadedError
from deeped_ray.serving.guard import SlowBodyError
from deeped_ray.serving.schemas import Error
from deeped_ray.serving.service import UnhealthyError
from deeped_ray.serving.turns import DeadlineError, GoneError, TooLargeError
from deeped_ray.storage.location import StorageError
from deeped_ray.types import DeepEdError, UnknownEntityError

RETRY_AFTER_S = 1
_TOO_LARGE = ("string_too_long", "too_long")
MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Error, "description": "no such entity"}}
ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Error, "description": "the API token is missing or wrong"},
    408: {"model": Error, "description": "the body did not arrive in time, or the answer took too long"},
    413: {"model": Error, "description": "the body, a text or the number of documents or mentions is too large"},
    422: {"model": Error, "description": "the request is not valid; the reply says where and why"},
    503: {"model": Error, "description": "too much work is waiting; try again after Retry-After seconds"},
}
"""For the documentation of every route."""


def add_errors(api: FastAPI) -> None:
    api.add_exception_handler(404, lambda *_: _refusal(404, "There is no such route. /docs lists all routes."))
    api.add_exception_handler(RequestValidationError, _bad_request)  # type: ignore[arg-type]
    api.add_exception_handler(UnknownEntityError, lambda _, error: _refusal(404, str(error)))
    api.add_exception_handler(TooLargeError, lambda _, error: _refusal(413, str(error)))
    api.add_exception_handler(SlowBodyError, _slow_body)
    api.add_exception_handler(DeepEdError, lambda _, error: _refusal(422, str(error)))
    api.add_exception_handler(StorageError, _storage_away)
    api.add_exception_handler(UnhealthyError, lambda _, error: _refusal(503, str(error)))
    api.add_exception_handler(OverloadedError, _overloaded)
    api.add_exception_handler(
        DeadlineError, lambda _, __: _refusal(408, "The answer took too long. Send less at once.")
    )
    api.add_exception_handler(GoneError, lambda _, __: _refusal(408, "The client has gone."))


def _refusal(status: int, detail: Any) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


async def _bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
    """Without FastAPI's echo of the input, which may hold what JSON cannot (NaN, half a surrogate pair)."""
    problems = [{"where": _printable(problem["loc"]), "problem": problem["msg"]} for problem in error.errors()]
    is_large = any(_is_too_large(problem) for problem in error.errors())
    return _refusal(413 if is_large else 422, problems)


def _is_too_large(problem: dict[str, Any]) -> bool:
    """Not a pair of three, which is no pair."""
    return problem["type"] in _TOO_LARGE and problem.get("ctx", {}).get("field_type") != "Tuple"


def _printable(where: tuple[int | str, ...]) -> list[int | str]:
    """Clients choose the names of fields, which may not be valid text."""
    return [part if isinstance(part, int) else part.encode(errors="replace").decode()[:100] for part in where]


async def _slow_body(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 408, {"Connection": "close"})


async def _storage_away(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": f"Nothing was changed. {error}"}, 503, {"Retry-After": str(RETRY_AFTER_S)})


async def _overloaded(_: Request, __: Exception) -> JSONResponse:
    message = "Too many requests are waiting. Try again shortly."
    return JSONResponse({"detail": message}, 503, {"Retry-After": str(RETRY_AFTER_S)})
