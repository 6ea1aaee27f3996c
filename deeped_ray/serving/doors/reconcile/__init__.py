"""The Reconciliation Service API 0.2, for OpenRefine: which entity each row of a table means. See `rows`."""

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, quote

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from deeped_ray import __version__
from deeped_ray.serving.doors.reconcile.rows import (
    ENTITY,
    MOST,
    PERSON,
    PROPERTIES,
    Extension,
    RowQueries,
    extension,
    preview_of,
    request_of,
    suggested,
    write_rows,
)
from deeped_ray.serving.link import mention_bytes
from deeped_ray.serving.schemas import Title, parse
from deeped_ray.serving.turns import TooLargeError
from deeped_ray.serving.work import Work
from deeped_ray.types import DeepEdError, UnknownEntityError

if TYPE_CHECKING:
    from deeped_ray.serving.service import LinkingService

MAX_FORM_BYTES = 1_000_000
MAX_QUERIES = 100
ANY_COLUMN = [
    {"id": "context", "name": "Context", "description": "Any column helps to tell entities of one name apart"}
]
_CALLBACK = re.compile(r"[\w$.]{1,100}")
_HEADERS = {"Access-Control-Allow-Origin": "*"}
"""The API demands it: its clients are pages of other servers. Nothing here writes, and tokens are not in cookies."""


def add_routes(api: FastAPI, service: "LinkingService", **_: Any) -> None:
    async def answer(fields: dict[str, str], request: Request) -> Response:
        if queries := fields.get("queries"):
            data = await _reconcile(service, queries)
        elif extend := fields.get("extend"):
            asked = parse(Extension, extend.encode())
            data = orjson.dumps(await service.in_turn(lambda: extension(service.lookup, asked)))
        else:
            catalogue = service.lookup.catalogue
            base = str(request.base_url).rstrip("/")
            data = orjson.dumps(manifest(base, space=catalogue.url(""), num_entities=len(catalogue)))
        return _reply(data, fields.get("callback"))

    @api.get("/reconcile", tags=["reconciliation"], response_class=Response)
    async def reconcile_by_get(
        request: Request,
        queries: Annotated[str, Query(description="rows to reconcile, as JSON")] = "",
        extend: Annotated[str, Query(description="entities and properties, as JSON")] = "",
        callback: str = "",
    ) -> Response:
        """The Reconciliation Service API 0.2, for OpenRefine: its manifest, or answers to `queries` or `extend`."""
        return await answer({"queries": queries, "extend": extend, "callback": callback}, request)

    @api.post("/reconcile", tags=["reconciliation"], response_class=Response, openapi_extra=_FORM)
    async def reconcile(request: Request) -> Response:
        """The same, as a form: a batch of rows as `queries`, or entities and properties as `extend`."""
        return await answer(_form(await request.body()), request)

    @api.get("/reconcile/suggest/{kind}", tags=["reconciliation"], response_class=Response)
    async def suggest(
        kind: str,
        prefix: Annotated[str, Query(max_length=500)] = "",
        cursor: Annotated[int, Query(ge=0, le=MOST)] = 0,
        callback: str = "",
    ) -> Response:
        """Completes an entity, a property or a type."""
        if kind == "entity":
            found = await service.in_turn(lambda: suggested(service.lookup, prefix, cursor=cursor))
        elif kind in ("property", "type"):
            known = [ENTITY, PERSON] if kind == "type" else ANY_COLUMN
            found = [each for each in known if each["name"].lower().startswith(prefix.lower())][cursor:]
        else:
            raise UnknownEntityError("Suggest entity, property or type.")
        return _reply(orjson.dumps({"result": found}), callback)

    @api.get("/reconcile/properties", tags=["reconciliation"], response_class=Response)
    async def propose(type: str = ENTITY["id"], callback: str = "") -> Response:
        """What can be fetched of entities."""
        properties = [{"id": name, "name": about} for name, about in PROPERTIES.items()]
        return _reply(orjson.dumps({"type": type, "properties": properties}), callback)

    @api.get("/reconcile/preview", tags=["reconciliation"], response_class=HTMLResponse)
    async def preview(id: Title) -> HTMLResponse:
        """A card about an entity, for a frame of OpenRefine's page."""
        card = await service.in_turn(lambda: preview_of(service.lookup, id))
        return HTMLResponse(card, headers=_HEADERS | _PREVIEW_HEADERS)


_EXAMPLE = '{"q0": {"query": "Montreal", "properties": [{"pid": "context", "v": "Stanley Cup"}]}}'
_FORM: dict[str, Any] = {
    "requestBody": {
        "content": {"application/x-www-form-urlencoded": {"schema": {"example": f"queries={quote(_EXAMPLE)}"}}}
    }
}
_PREVIEW_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"}


def _form(body: bytes) -> dict[str, str]:
    if len(body) > MAX_FORM_BYTES:
        raise TooLargeError(f"The form has {len(body):,} bytes; the limit is {MAX_FORM_BYTES:,}. Send smaller batches.")
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=20, errors="strict"))
    except ValueError as error:
        raise DeepEdError(f"The body is not a form: {error}.") from None


def _reply(data: bytes, callback: str | None) -> Response:
    """As JSON, or as the call of a function for clients that cannot read across origins otherwise."""
    if not callback:
        return Response(data, media_type="application/json", headers=_HEADERS)
    if not _CALLBACK.fullmatch(callback):
        raise DeepEdError("`callback` is not the name of a function.")
    return Response(f"/**/{callback}({data.decode()});", media_type="text/javascript", headers=_HEADERS)


def manifest(base: str, *, space: str, num_entities: int) -> dict[str, Any]:
    return {
        "versions": ["0.2"],
        "name": f"deeped-ray ({num_entities:,} entities)",
        "identifierSpace": space,
        "schemaSpace": "https://schema.org/Thing",
        "serviceVersion": __version__,
        "documentation": f"{base}/docs",
        "defaultTypes": [ENTITY, PERSON],
        "view": {"url": f"{base}/#entity={{{{id}}}}"},
        "preview": {"url": f"{base}/reconcile/preview?id={{{{id}}}}", "width": 400, "height": 220},
        "suggest": {
            kind: {"service_url": base, "service_path": f"/reconcile/suggest/{kind}"}
            for kind in ("entity", "property", "type")
        },
        "extend": {"propose_properties": {"service_url": base, "service_path": "/reconcile/properties"}},
        "batchSize": MAX_QUERIES,
    }


async def _reconcile(service: "LinkingService", queries: str) -> bytes:
    body = queries.encode()
    asked = parse(RowQueries, body).root
    if len(asked) > MAX_QUERIES:
        raise TooLargeError(f"The batch has {len(asked):,} queries; the limit is {MAX_QUERIES}. Send several batches.")
    texts = [request_of(each) for each in asked.values()]
    work = Work(texts, partial(write_rows, asked, service.lookup), mention_bytes)
    return await service.answer(lambda *_: work, body)
