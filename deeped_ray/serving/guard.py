"""What stands before every route: the size of the body, the API token, the version in every reply, and the counting."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OnRequest = Callable[[str, int, float], None]
OPEN = ("/healthz", "/readyz", "/page/", "/docs", "/openapi.json")
"""Besides the page itself, what is answered without a token: probes have none, and browsers have to ask for one."""
CLIENT_GONE = 499
_log = logging.getLogger(__name__)


class Guard:
    """An ASGI middleware."""

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, token: str | None, version: str, on_request: OnRequest
    ) -> None:
        self._app, self._max_body_bytes, self._token = app, max_body_bytes, token
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
                headers["Deeped-Version"] = self._version
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            await self._pass(scope, receive, send_marked)
        except asyncio.CancelledError:
            status = CLIENT_GONE
            raise
        except Exception:
            _log.exception("a request failed")
            failure = JSONResponse({"detail": "The server failed at this request; its log says why."}, 500)
            await failure(scope, receive, send_marked)
        finally:
            route = getattr(scope.get("route"), "path", "none")  # what was asked for may be anything
            self._on_request(route, status, time.perf_counter() - start)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_allowed(scope):
            message = "Give the API token as Authorization: Bearer TOKEN."
            refusal = JSONResponse({"detail": message}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        body, is_whole = await _read(receive, self._max_body_bytes)
        if not is_whole:
            return  # the client has gone
        if body is None:
            message = f"The body is larger than {self._max_body_bytes:,} bytes. Send it in several requests."
            await JSONResponse({"detail": message}, 413)(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    def _is_allowed(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        is_reading = scope["method"] in ("GET", "HEAD")
        if self._token is None or (is_reading and (path == "/" or path.startswith(OPEN))):
            return True
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return hmac.compare_digest(given.encode(), self._token.encode()) and scheme.lower() == "bearer"


async def _read(receive: Receive, max_bytes: int) -> tuple[bytes | None, bool]:
    """The body, None if it is too large, of which no more is kept than the limit; and whether it came to its end."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None, False
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= max_bytes:
            chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks) if size <= max_bytes else None, True


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once more, then what comes after it."""
    is_given = False

    async def replayed() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
