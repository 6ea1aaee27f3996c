"""What `make docs` adds to the pages of this folder: the README as home, and two references that follow from the code.

mkdocs calls the functions `on_...`. Pages link to files of the repository by `../`: the site does not have these, so it
names them without a link.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import deeped_ray
from deeped_ray.serving.api import create_api

ROOT = Path(__file__).parent.parent
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
_LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=.?https?:|<link[^>]*\srel=.?(?:stylesheet|preconnect)[^>]*https?:"
)
_PYTHON = "# Python reference\n\nWritten from the docstrings. [How to use it](python.md).\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that no file of this folder holds."""
    pages = {
        "index.md": (ROOT / "README.md").read_text().replace("](docs/", "]("),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text().replace("](docs/", "]("),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "]("),
        "python-reference.md": _PYTHON + "\n".join(_objects()),
        "http-reference.md": "\n".join(_routes(_openapi())),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that lead out of this folder: to a page of the site, or to nothing."""
    markdown = markdown.replace("](CONTRIBUTING.md)", "](contributing.md)").replace("](../README.md)", "](index.md)")
    return _OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Readers may be without the internet, and nobody else should learn what they read."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load something from elsewhere: {found[0]}")
    return output


def _objects() -> Iterator[str]:
    homes = deeped_ray._HOMES
    for name in sorted(set(deeped_ray.__all__) - {"__version__"}):
        yield f"::: deeped_ray.{homes.get(name, 'types')}.{name}\n"


def _openapi() -> dict[str, Any]:
    """No route is called, so no knowledge base is opened."""
    service: Any = SimpleNamespace(metrics=SimpleNamespace(request=None))
    return create_api(service).openapi()


def _routes(openapi: dict[str, Any]) -> Iterator[str]:
    """The server's own description of its routes, as a page."""
    yield "# HTTP reference\n\nWritten from the server's OpenAPI document, `GET /openapi.json`. [How to use it](http.md).\n"
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield route.get("description", route.get("summary", "")) + "\n"
            yield from _table("parameter", _parameters(route))
            for content, body in route.get("requestBody", {}).get("content", {}).items():
                yield f"Body, `{content}`: {_type_of(body.get('schema', {}))}\n"
            yield from _table("status", _replies(route))
    yield "# Schemas\n"
    for name, schema in openapi["components"]["schemas"].items():
        yield f"## {name}\n\n{schema.get('description', '')}\n"
        fields = schema.get("properties", {}).items()
        yield from _table("field", [(field, _type_of(value), value.get("description", "")) for field, value in fields])


def _parameters(route: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = route.get("parameters", ())
    return [(each["name"], _type_of(each["schema"]), each.get("description", "")) for each in found]


def _replies(route: dict[str, Any]) -> list[tuple[str, str, str]]:
    def content_of(reply: dict[str, Any]) -> str:
        found = reply.get("content", {}).items()
        return ", ".join(f"`{kind}` {_type_of(content.get('schema', {}))}" for kind, content in found)

    return [(status, content_of(reply), reply["description"]) for status, reply in route["responses"].items()]


def _table(first: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {first} | type | |\n|---|---|---|"
        for name, kind, text in rows:
            yield f"| `{name}` | {kind} | {' '.join(text.split()).replace('|', chr(92) + '|')} |"
        yield ""


def _type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(map(_type_of, schema[several]))
    if schema.get("type") == "array":
        return f"list of {_type_of(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
