"""The Model Context Protocol: tools with which a language model asks what the names in a text mean.

`POST /mcp` of the server (streamable HTTP, no sessions) and `deeped mcp` (standard input and output) offer the same tools.
The package `mcp` is imported with the first message: it takes 0.4 s and 28 MB, which other replicas save.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from deeped_ray import __version__
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.opened import KnowledgeBase
from deeped_ray.serving.doors.mcp.tools import MAX_CHARACTERS, TOOLS, ToolError, call
from deeped_ray.serving.link import mention_bytes
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.turns import TooLargeError
from deeped_ray.serving.work import Work
from deeped_ray.types import DeepEdError, Prediction

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from deeped_ray.serving.service import LinkingService

MAX_MESSAGE_BYTES = 256_000
"""Room for the longest text with every character escaped."""
INVALID_REQUEST = -32600
INSTRUCTIONS = (
    "Entity linking: says which entity of a knowledge base (Wikipedia, or a company's own) each name in a text means."
    " Call link_text with the text as it is, so that the words around a name can decide. Probabilities are calibrated:"
    " of answers with 0.8, about four in five are right."
)
_EXAMPLE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
Found = TypeVar("Found")


class Knows(Protocol):
    """What the tools ask: a server's queue, or an open knowledge base."""

    async def link(self, asked: LinkRequest) -> list[Prediction]: ...

    async def look_up(self, find: Callable[[Lookup], Found]) -> Found: ...


class Local:
    """A knowledge base of this process."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb

    async def link(self, asked: LinkRequest) -> list[Prediction]:
        link = functools.partial(self._kb.link, asked.text, asked.spans, threshold=asked.threshold, explain=False)
        return await asyncio.to_thread(link)

    async def look_up(self, find: Callable[[Lookup], Found]) -> Found:
        return await asyncio.to_thread(find, self._kb)


class Served:
    """The service of a replica: what is asked here waits in its queue, and has its limits."""

    def __init__(self, service: "LinkingService") -> None:
        self._service = service

    async def link(self, asked: LinkRequest) -> list[Prediction]:
        found: list[Prediction] = []

        def keep(answers: Any) -> Any:
            found.extend(answers[0])
            yield b""

        work = Work([asked], keep, mention_bytes)
        await self._service.answer(lambda *_: work, asked.text.encode())
        return found

    async def look_up(self, find: Callable[[Lookup], Found]) -> Found:
        return await self._service.in_turn(lambda: find(self._service.lookup))


def server_of(knows: Knows) -> "Server[Any]":
    """The tools as the official package serves them. The first call imports it."""
    try:
        import mcp_types as types
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise DeepEdError("The package of the protocol is missing. Run pip install 'deeped-ray[serve]'.") from error
    # one line for each request that begins and ends
    logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)

    async def list_tools(*_: object) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        tools = [
            types.Tool(
                name=name,
                description=tool.about,
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                annotations=hints,
            )
            for name, tool in TOOLS.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, answer = await call(knows, asked.name, asked.arguments or {})
        except ToolError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=answer)

    return Server(
        "deeped-ray",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


# -- over standard input and output


def run_stdio(kb: KnowledgeBase) -> None:
    """Until the client closes its end."""
    server = server_of(Local(kb))

    async def serve() -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(serve())


# -- over HTTP


def add_routes(api: FastAPI, service: "LinkingService", **_: Any) -> None:
    server = functools.cache(lambda: server_of(Served(service)))

    @api.post(
        "/mcp",
        response_class=JSONResponse,
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"example": _EXAMPLE}}}}},
        tags=["language models"],
    )
    async def model_context_protocol(request: Request) -> Response:
        """The Model Context Protocol, for language models: link_text, find_entity, related_entities."""
        try:
            body = await request.body()
        except TooLargeError as error:
            return _refusal(413, str(error))
        if len(body) > MAX_MESSAGE_BYTES:
            problem = f"The message has {len(body):,} bytes; the limit is {MAX_MESSAGE_BYTES:,}."
            return _refusal(413, f"{problem} Send a text in pieces of at most {MAX_CHARACTERS:,} characters.")
        try:
            return Exchange(await asyncio.to_thread(server), body)
        except DeepEdError as error:
            return _refusal(501, str(error))


def _refusal(status: int, message: str) -> JSONResponse:
    """An error of the protocol's own kind, for a message that was not read."""
    error = {"code": INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status)


class Exchange(Response):
    """One message and its answer. There are no sessions, so each has a manager of its own, and any replica can answer it."""

    def __init__(self, server: "Server[Any]", body: bytes) -> None:
        super().__init__()
        self._server, self._message = server, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        is_read = False

        async def read() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._message, "more_body": False}

        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, read, send)
