"""The HTTP interface: FastAPI routes around a `LinkingService`, the same under Ray Serve and under plain uvicorn.

A request to link takes one way: body and its reader (link.py, rel.py, nif.py) -> `LinkingService.answer`, which queues
it -> the body of the reply.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.middleware import Middleware
from starlette.routing import request_response

from deeped_ray import __version__
from deeped_ray.serving import metrics
from deeped_ray.serving.changes import add_changes
from deeped_ray.serving.doors import add_doors
from deeped_ray.serving.errors import ERRORS, MISSING, add_errors
from deeped_ray.serving.guard import Guard
from deeped_ray.serving.link import link_work
from deeped_ray.serving.nif import Identifier, nif_work
from deeped_ray.serving.rel import RelMention, RelRequest, rel_work
from deeped_ray.serving.schemas import (
    MAX_BODY_BYTES,
    Count,
    EntityReply,
    Health,
    LinkRequest,
    LinkRequests,
    LinkResponse,
    MentionReply,
    NamesReply,
    NeighborsReply,
    RelatednessReply,
    RelatednessRequest,
    SearchReply,
    SearchRequest,
    Title,
    Version,
    parse_lookup,
)
from deeped_ray.serving.service import LinkingService
from deeped_ray.types import DeepEdError

PAGE = Path(__file__).parent / "page"
_TURTLE: dict[str, Any] = {"text/turtle": {"schema": {"type": "string"}}}
_NIF_EXAMPLE = """@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .
<http://example.org/d#char=0,32> a nif:Context ; nif:isString "Montreal met Toronto on the ice." .
"""
# the page loads nothing from elsewhere, and browsers must not let it
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


class Direct(APIRoute):
    """A route whose endpoint reads the request itself. FastAPI describes it, and does nothing else: to look for parameters
    and dependencies, of which there are none, takes half of the time between socket and queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = request_response(self.endpoint)


def create_api(service: LinkingService, *, token: str | None = None, writers_token: str | None = None) -> FastAPI:
    """If there is a `token`, clients have to send it as Authorization: Bearer TOKEN. Without a `writers_token`, none may write."""
    guard = Middleware(
        Guard,
        max_body_bytes=MAX_BODY_BYTES,
        token=token,
        writers_token=writers_token,
        version=lambda: " ".join(f"{name}={value}" for name, value in service.version.items()),
        on_request=service.metrics.request,
    )

    @asynccontextmanager
    async def watched(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    description = "Entity linking that explains its answers."
    api = FastAPI(
        title="deeped-ray",
        version=__version__,
        description=description,
        responses=ERRORS,
        middleware=[guard],
        lifespan=watched,
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere; ours is docs.html
        redoc_url=None,
        redirect_slashes=False,  # the redirect would name whatever host the client names
    )
    add_errors(api)
    _add_linking(api, service)
    add_changes(api, service)
    add_doors(api, service, has_writers=writers_token is not None)
    _add_lookups(api, service)
    _add_checks(api, service)
    _add_page(api)
    _describe(api)
    return api


def _add_linking(api: FastAPI, service: LinkingService) -> None:
    async def link(request: Request) -> Response:
        """Link one document or a list of them. Mentions are given as spans, or found in the text."""
        read = partial(link_work, version=service.version)
        return Response(await service.answer(read, await request.body()), media_type="application/json")

    async def link_for_rel(request: Request) -> Response:
        """REL's interface: `[start, length, mention, entity, confidence, detection confidence, tag]` for each mention."""
        return Response(await service.answer(rel_work, await request.body()), media_type="application/json")

    add = partial(api.router.add_api_route, methods=["POST"], tags=["linking"], route_class_override=Direct)
    replies = LinkResponse | list[LinkResponse]
    add("/link", link, response_model=replies, openapi_extra=_body(LinkRequest, LinkRequests))
    add("/", link_for_rel, response_model=list[RelMention], openapi_extra=_body(RelRequest))

    @api.post(
        "/nif",
        response_class=Response,
        responses={200: {"content": _TURTLE}},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"text/turtle": {**_TURTLE["text/turtle"], "example": _NIF_EXAMPLE}},
            }
        },
        tags=["linking"],
    )
    async def link_for_gerbil(
        request: Request,
        confidence: Annotated[
            bool, Query(description="add itsrdf:taConfidence, which GERBIL tunes on the test set")
        ] = False,
        identifier: Annotated[
            Identifier, Query(description="name entities by the addresses of their pages, or by Wikidata URIs")
        ] = "page",
    ) -> Response:
        """NIF in Turtle, as GERBIL sends it: a text with phrases (D2KB) or without (A2KB)."""
        read = partial(nif_work, confidence=confidence, identifier=identifier)
        return Response(await service.answer(read, await request.body()), media_type="text/turtle; charset=utf-8")


def _add_lookups(api: FastAPI, service: LinkingService) -> None:
    @api.get("/entities/{title:path}/neighbors", responses=MISSING, tags=["look-ups"])
    async def neighbors(title: Title, count: Count = 10) -> NeighborsReply:
        """The entities whose vectors are nearest to that of an entity."""

        def find() -> NeighborsReply:
            lookup = service.lookup
            entity = lookup.entity(title)
            near = map(asdict, lookup.related([entity.title], count=count))
            return NeighborsReply.model_validate({"entity": asdict(entity), "neighbors": near})

        return await service.in_turn(find)

    @api.get("/entities/{title:path}/names", responses=MISSING, tags=["look-ups"])
    async def names(title: Title, count: Count = 10) -> NamesReply:
        """The names by which an entity is called, most frequent first."""

        def find() -> NamesReply:
            lookup = service.lookup
            entity = lookup.entity(title)
            called = map(asdict, lookup.names(entity.title, count=count))
            return NamesReply.model_validate({"entity": asdict(entity), "names": called})

        return await service.in_turn(find)

    @api.get("/entities/{title:path}", responses=MISSING, tags=["look-ups"])
    async def entity(title: Title) -> EntityReply:
        """An entity by its title, by a redirect to it, or by its Wikidata id."""
        return EntityReply.model_validate(asdict(await service.in_turn(lambda: service.lookup.entity(title))))

    @api.get("/mentions/{surface:path}", tags=["look-ups"])
    async def mention(surface: Title, count: Count = 10) -> MentionReply:
        """What a name can mean, with p(e|m). If the name is not known, entities whose names resemble it."""

        def find() -> MentionReply:
            lookup = service.lookup
            name = lookup.mention(surface)
            alike = [] if name.candidates else lookup.resembling(surface, count=count)
            found = {"candidates": map(asdict, name.candidates[:count]), "resembling": map(asdict, alike)}
            return MentionReply.model_validate(asdict(name) | found)

        return await service.in_turn(find)

    @api.post("/relatedness", responses=MISSING, openapi_extra=_body(RelatednessRequest), tags=["look-ups"])
    async def relatedness(request: Request) -> RelatednessReply:
        """How related the entities of each pair are."""
        asked = parse_lookup(RelatednessRequest, await request.body())
        similarities = await service.in_turn(lambda: [service.lookup.relatedness(*pair) for pair in asked.pairs])
        return RelatednessReply(similarities=similarities)

    @api.post("/search", responses=MISSING, openapi_extra=_body(SearchRequest), tags=["look-ups"])
    async def search(request: Request) -> SearchReply:
        """Entities near other entities, near a text, or near a mix of both; or entities whose names resemble a name."""
        asked = parse_lookup(SearchRequest, await request.body())
        is_mix = bool(asked.titles or asked.text)
        if not is_mix and not asked.name:
            raise DeepEdError("Give titles, a text or a name to search for.")

        def find() -> SearchReply:
            lookup = service.lookup
            related = lookup.related(asked.titles, asked.text, count=asked.count) if is_mix else []
            alike = lookup.resembling(asked.name, count=asked.count) if asked.name else []
            return SearchReply.model_validate({"related": map(asdict, related), "resembling": map(asdict, alike)})

        return await service.in_turn(find)


def _add_checks(api: FastAPI, service: LinkingService) -> None:
    def health() -> Health:
        return Health(status="ok", entities=len(service.lookup.catalogue), version=Version(**service.version))

    @api.head("/healthz", include_in_schema=False)
    @api.get("/healthz", tags=["operation"])
    async def healthz() -> Health:
        """Links a text whose answers are known. 503 if the answers differ."""
        await service.check_in_thread()
        return health()

    @api.head("/readyz", include_in_schema=False)
    @api.get("/readyz", tags=["operation"])
    async def readyz() -> Health:
        """The same. Also 503 while too much work is waiting."""
        await service.check_through_queue()
        return health()

    @api.get("/version", tags=["operation"])
    def version() -> Version:
        """Versions of the software, the model and the knowledge base. Every reply has them in its header Deeped-Version."""
        return Version(**service.version)

    @api.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
    async def prometheus() -> str:
        """Metrics of all replicas, for Prometheus."""
        return await metrics.gather()


def _add_page(api: FastAPI) -> None:
    @api.head("/", include_in_schema=False)
    @api.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    @api.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html", headers=_PAGE_HEADERS)

    api.mount("/page", StaticFiles(directory=PAGE))


# -- bodies


def _body(*models: type[BaseModel]) -> dict[str, Any]:
    """Describes a body that `parse` reads."""
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": references}}}}}


def _describe(api: FastAPI) -> None:
    """Add the bodies that FastAPI does not know to /openapi.json, which is made when it is first asked for."""
    without_bodies = api.openapi
    bodies = (LinkRequest, LinkRequests, RelRequest, RelatednessRequest, SearchRequest)

    def openapi() -> dict[str, Any]:
        if not api.openapi_schema:
            inputs = [(model, "validation") for model in bodies]
            _, schemas = models_json_schema(inputs, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
            without_bodies()["components"]["schemas"] |= schemas["$defs"]
        return without_bodies()

    api.openapi = openapi  # type: ignore[method-assign]
