"""The tools for language models, asked by the official client: of the real Serve, and over standard input and output."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import httpx2
import orjson
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from deeped_ray.cli import main
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving.api import create_api
from deeped_ray.serving.doors.mcp import MAX_MESSAGE_BYTES
from deeped_ray.serving.service import LinkingService
from tests.serving.conftest import InProcess

ROOT = Path(__file__).parent.parent.parent
HOCKEY = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
MEGABYTE = "Montreal met Toronto. " * 50_000
HEADERS = {"Accept": "application/json, text/event-stream"}
Result = TypeVar("Result")
Asking = Callable[[Client], Awaitable[Result]]


def over_http(url: str, asking: Asking[Result], *, mode: Any = "auto") -> Result:
    async def run() -> Result:
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=60) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            return await asking(client)

    return asyncio.run(run())


def over_stdio(kb: KnowledgeBase, asking: Asking[Result]) -> Result:
    command = [sys.executable, "-m", "deeped_ray.cli", "mcp", "--kb", str(kb.root)]
    started = StdioServerParameters(command=command[0], args=command[1:], env={**os.environ})

    async def run() -> Result:
        async with Client(stdio_client(started)) as client:
            return await asking(client)

    return asyncio.run(run())


async def ask_all(client: Client) -> dict[str, Any]:
    """What both ways must answer alike."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "linked": ("link_text", {"text": HOCKEY}),
        "alone": ("find_entity", {"name": "Montreal"}),
        "in context": ("find_entity", {"name": "Montreal", "context": HOCKEY}),
        "by id": ("find_entity", {"name": "Q340"}),
        "unknown": ("find_entity", {"name": "Stanly Cup"}),
        "related": ("related_entities", {"entity": "Q188143", "count": 3}),
        "misspelt": ("related_entities", {"entity": "Stanly Cup"}),
        "too long": ("link_text", {"text": "a" * 20_001}),
        "without text": ("link_text", {}),
        "no tool": ("delete_entity", {}),
    }
    tools = (await client.list_tools()).tools
    return {
        "tools": {tool.name: tool for tool in tools},
        **{name: await client.call_tool(*asked) for name, asked in calls.items()},
    }


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def titles_of(result: CallToolResult) -> list[str]:
    assert result.structured_content is not None
    return [each["title"] for each in result.structured_content["entities"]]


@pytest.fixture(scope="module")
def answers(served_url: str) -> dict[str, Any]:
    return over_http(served_url, ask_all)


def test_a_model_learns_what_each_name_means(answers: dict[str, Any]) -> None:
    linked = answers["linked"].structured_content
    meant = {each["name"]: each["entity"]["title"] for each in linked["mentions"]}
    assert meant["Montreal"] == "Montreal Canadiens"
    assert meant["Boston"] == "Boston Bruins"
    montreal = linked["mentions"][0]
    assert (montreal["start"], montreal["entity"]["wikidata"], montreal["instead"]) == (0, "Q188143", "Montreal")


def test_a_context_decides_what_a_name_means(answers: dict[str, Any]) -> None:
    assert titles_of(answers["alone"])[0] == "Montreal"
    assert titles_of(answers["in context"])[0] == "Montreal Canadiens"
    assert titles_of(answers["by id"]) == ["Montreal"]
    assert titles_of(answers["unknown"])[0] == "Stanley Cup"


def test_related_entities_are_found_by_id_or_title(answers: dict[str, Any]) -> None:
    related = answers["related"].structured_content
    assert related["entity"] == "Montreal Canadiens"
    assert len(related["related"]) == 3


def test_schemas_and_answers_are_short(answers: dict[str, Any]) -> None:
    """A model pays for every character: these are some 800 and 250 words of its."""
    assert set(answers["tools"]) == {"link_text", "find_entity", "related_entities"}
    schemas = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in answers["tools"].values()]
    assert sum(map(len, schemas)) < 4000
    assert len(text_of(answers["linked"])) < 1000
    assert orjson.loads(text_of(answers["linked"])) == answers["linked"].structured_content


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("misspelt", "No entity 'Stanly Cup' in this knowledge base. Perhaps 'Stanley Cup'?"),
        ("too long", "The text has 20,001 characters; the limit is 20,000. Send it in pieces."),
        ("without text", "text: Field required."),
        ("no tool", "No tool 'delete_entity'. There are link_text, find_entity, related_entities."),
    ],
)
def test_a_wrong_call_tells_the_model_what_to_do(answers: dict[str, Any], name: str, problem: str) -> None:
    assert answers[name].is_error
    assert text_of(answers[name]) == problem


def test_a_megabyte_is_an_error_of_the_protocol(served_url: str) -> None:
    async def ask(client: Client) -> None:
        with pytest.raises(MCPError, match=r"has 1,1\d\d,\d\d\d bytes; the limit is 256,000\. Send a text in pieces"):
            await client.call_tool("link_text", {"text": MEGABYTE})

    over_http(served_url, ask)


def test_clients_of_the_first_protocol_are_served_too(served_url: str) -> None:
    async def ask(client: Client) -> CallToolResult:
        return await client.call_tool("related_entities", {"entity": "Stanley Cup"})

    assert not over_http(served_url, ask, mode="legacy").is_error


def test_the_example_of_the_docs_works(served_url: str) -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    ours = {**os.environ, "NO_PROXY": "127.0.0.1"}
    run = [sys.executable, "-c", example.replace("http://127.0.0.1:8000", served_url)]
    printed = subprocess.run(run, env=ours, capture_output=True, text=True, timeout=120, check=True).stdout
    assert printed.startswith("Montreal Montreal")


def test_standard_input_and_output_give_the_same_answers(mini_kb: KnowledgeBase, answers: dict[str, Any]) -> None:
    assert over_stdio(mini_kb, ask_all) == answers


def test_a_missing_knowledge_base_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--kb", str(tmp_path / "none")]) == 2
    assert "No knowledge base" in capsys.readouterr().err


def post(client: httpx.Client, body: bytes, **headers: str) -> httpx.Response:
    return client.post("/mcp", content=body, headers={"Content-Type": "application/json"} | HEADERS | headers)


def test_the_token_is_asked_for(service: LinkingService) -> None:
    message = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    with httpx.Client(transport=InProcess(create_api(service, token="t" * 16)), base_url="http://test") as client:
        assert post(client, message).status_code == 401
        assert post(client, message, Authorization=f"Bearer {'t' * 16}").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[" * 100_000, 400),
        (b"\xff", 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', 200),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}', 200),
        (b"x" * (MAX_MESSAGE_BYTES + 1), 413),
        (b"x" * 9_000_000, 413),
    ],
    ids=str,
)
def test_what_is_no_call_gets_an_error_of_the_protocol(client: httpx.Client, body: bytes, status: int) -> None:
    reply = post(client, body)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]


def test_nothing_waits_for_news_on_a_connection(client: httpx.Client) -> None:
    """A stream without an end would hold one of the requests that a replica takes."""
    assert client.get("/mcp", headers={"Accept": "text/event-stream"}).status_code == 405


def test_the_package_is_imported_with_the_first_message() -> None:
    for path in (ROOT / "deeped_ray" / "serving").rglob("*.py"):
        at_once = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [
            name for name in map(ast.unparse, at_once) if " mcp" in name.replace("deeped_ray.serving.doors.mcp", "")
        ]
