"""What every request passes first: the API token, the limits of the body, the version in the reply, and counting.

HAProxy's rules (edge.py) keep slow bodies away from replicas. These limits hold without it too, under plain uvicorn.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deeped_ray.serving.turns import TooLargeError
from deeped_ray.types import DeepEdError

OnRequest = Callable[[str, int, float], None]
OPEN = ("/healthz", "/readyz", "/page/", "/docs", "/openapi.json")
"""Answered without a token, like the page itself: probes have none, and the page has to ask its user for one."""
MANIFEST = "/reconcile"
"""Answered without a token too, if nothing is asked of it: it says that a token is needed."""
WRITTEN = ("/entities", "/feedback")
"""What clients may change, with the writers' token."""
CLIENT_GONE = 499
BODY_GRACE_S = 5.0
BODY_BYTES_PER_S = 100_000
"""A body may be the grace late. Every so many bytes give one second more, but never more than the grace from then on: a
client that has sent much at once and then stalls is given up after the grace."""
MAX_BODY_S = 30.0
_log = logging.getLogger(__name__)


class SlowBodyError(DeepEdError):
    """A body that does not arrive in time."""


class Guard:
    """An ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        token: str | None,
        writers_token: str | None,
        version: Callable[[], str],
        on_request: OnRequest,
    ) -> None:
        self._app, self._max_body_bytes = app, max_body_bytes
        self._token, self._writers_token = token, writers_token
        self._version, self._on_request = version, on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["Deeped-Version"] = self._version()
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            app = _NO_BODY if _has_misplaced_body(scope) else self._refusal(scope) or self._app
            await app(scope, _limited(receive, self._max_body_bytes), send_marked)
        except ClientDisconnect:
            status = CLIENT_GONE
        except asyncio.CancelledError:
            status = CLIENT_GONE
            raise
        except Exception:
            _log.exception("a request failed")
            failure = JSONResponse({"detail": "The server failed to answer this request. Its log says why."}, 500)
            await failure(scope, receive, send_marked)
        finally:
            route = getattr(scope.get("route"), "path", "none")  # not the path, which can be anything
            self._on_request(route, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Whoever may write may read too."""
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        is_reading = scope["method"] in ("GET", "HEAD")
        is_writing = not is_reading and any(path == each or path.startswith(f"{each}/") for each in WRITTEN)
        if self._token is None and not is_writing:
            return None
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        is_reader, is_writer = (
            token is not None and hmac.compare_digest(given.encode(), token.encode()) and scheme.lower() == "bearer"
            for token in (self._token, self._writers_token)
        )
        if is_writing:
            if is_writer:
                return None
            return _NO_WRITERS_TOKEN if self._writers_token and not is_reader else _NO_WRITING
        is_manifest = path == MANIFEST and not scope["query_string"]
        is_open = is_reading and (path == "/" or path.startswith(OPEN) or is_manifest)
        return None if is_open or is_reader or is_writer else _NO_TOKEN


_NO_TOKEN = JSONResponse(
    {"detail": "Send the API token as Authorization: Bearer TOKEN."}, 401, {"WWW-Authenticate": "Bearer"}
)


_NO_WRITERS_TOKEN = JSONResponse(
    {"detail": "Send the writers' token as Authorization: Bearer TOKEN: this route changes something."},
    401,
    {"WWW-Authenticate": "Bearer"},
)


_NO_WRITING = JSONResponse(
    {
        "detail": "Changing entities or correcting answers takes the writers' token, which this server may not have: see `writers_token_file`."
    },
    403,
)


_NO_BODY = JSONResponse({"detail": "GET and HEAD take no body."}, 400, {"Connection": "close"})


def _has_misplaced_body(scope: Scope) -> bool:
    if scope["method"] not in ("GET", "HEAD"):
        return False
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _limited(receive: Receive, max_bytes: int) -> Receive:
    """A `receive` that refuses a body which is too large or too slow.

    If it is too large, the refusal waits until the client has sent it all: only then clients read a reply.
    """
    size, start, is_whole = 0, time.monotonic(), False
    deadline = start + BODY_GRACE_S

    async def in_time() -> Message:
        nonlocal size, is_whole, deadline
        if is_whole:  # what comes next is that the client has gone, whenever that may be
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), min(deadline, start + MAX_BODY_S) - time.monotonic())
        except asyncio.TimeoutError as error:
            waited_s = time.monotonic() - start
            raise SlowBodyError(f"Of the body, {size:,} bytes arrived in {waited_s:.0f} s. Send it faster.") from error
        arrived = len(message.get("body", b""))
        size, is_whole = size + arrived, not message.get("more_body")
        deadline = min(deadline + arrived / BODY_BYTES_PER_S, time.monotonic() + BODY_GRACE_S)
        return message

    async def limited() -> Message:
        message = await in_time()
        if size <= max_bytes:
            return message
        while not is_whole:
            await in_time()
        raise TooLargeError(f"The body is larger than {max_bytes:,} bytes. Send it in several requests.")

    return limited
