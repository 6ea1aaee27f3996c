"""The HTTP interface: FastAPI routes around a `LinkingService`, the same under Ray Serve and under plain uvicorn."""

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware

from deeped_ray import __version__
from deeped_ray.linking.lookup import UnknownEntityError
from deeped_ray.types import DeepEdError
from serve import metrics
from serve.batcher import OverloadedError
from serve.guard import Guard
from serve.nif import read_nif, write_nif
from serve.rel import RelMention, RelRequest, rel_answer
from serve.schemas import (
    MAX_BODY_BYTES,
    Count,
    EntityReply,
    Error,
    Health,
    LinkRequests,
    LinkResponses,
    MentionReply,
    NeighborsReply,
    RelatednessReply,
    RelatednessRequest,
    SearchReply,
    SearchRequest,
    Title,
    Version,
)
from serve.service import Job, LinkingService, Predictions

PAGE = Path(__file__).parent / "page"
RETRY_AFTER_S = 1
_TOO_LARGE = ("string_too_long", "too_long")
_log = logging.getLogger(__name__)
_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Error, "description": "the API token is missing or wrong"},
    413: {"model": Error, "description": "body, text or number of documents is too large"},
    422: {"model": Error, "description": "the request makes no sense; says where and why"},
    503: {"model": Error, "description": "too much is waiting; try again after Retry-After seconds"},
}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Error, "description": "no such entity"}}
_TURTLE: dict[str, Any] = {"text/turtle": {"schema": {"type": "string"}}}
_NIF_EXAMPLE = """@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .
<http://example.org/d#char=0,32> a nif:Context ; nif:isString "Montreal met Toronto on the ice." .
"""
# the page loads nothing from elsewhere, and may not
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


def create_api(service: LinkingService, *, token: str | None = None) -> FastAPI:
    """`token`: what clients have to send as Authorization: Bearer; none asks for none."""
    api = FastAPI(
        title="deeped-ray",
        version=__version__,
        description="Entity linking that explains its answers.",
        responses=_ERRORS,
        middleware=[
            Middleware(
                Guard,
                max_body_bytes=MAX_BODY_BYTES,
                token=token,
                version=" ".join(f"{name}={value}" for name, value in service.version.items()),
                on_request=service.metrics.request,
            )
        ],
    )
    _add_errors(api)
    _add_linking(api, service)
    _add_lookups(api, service)
    _add_checks(api, service)
    _add_page(api)
    return api


def _add_linking(api: FastAPI, service: LinkingService) -> None:
    @api.post("/link", response_model=LinkResponses, tags=["linking"])
    async def link(body: LinkRequests) -> Response:
        """Link one document or a list of them. Mentions are given as spans, or found in the text."""
        is_list = isinstance(body.root, list)
        requests = body.root if isinstance(body.root, list) else [body.root]
        documents = await service.documents([(request.text, request.spans) for request in requests])
        job = Job(
            documents,
            lambda answers: service.write_json(requests, answers, is_list=is_list),
            thresholds=[request.threshold for request in requests],
            explain=any(request.explain for request in requests),
        )
        return Response(await service.answer(job), media_type="application/json")

    @api.post("/", response_model=list[RelMention], tags=["linking"])
    async def link_for_rel(body: RelRequest) -> Response:
        """REL's interface: `[start, length, mention, entity, confidence, detection confidence, tag]` for each mention."""
        documents = await service.documents([(body.text, body.spans)])
        job = Job(documents, lambda answers: orjson.dumps(rel_answer(answers[0])))
        return Response(await service.answer(job), media_type="application/json")

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
    ) -> Response:
        """NIF in Turtle, as GERBIL sends it: a text with phrases (D2KB) or without (A2KB)."""
        asked = await asyncio.to_thread(read_nif, await request.body())
        documents = await service.documents([(asked.text, asked.spans)])

        def write(answers: list[Predictions]) -> bytes:
            return write_nif(asked, answers[0], entity_uri=lambda entity: entity.url, confidence=confidence).encode()

        return Response(await service.answer(Job(documents, write)), media_type="text/turtle; charset=utf-8")


def _add_lookups(api: FastAPI, service: LinkingService) -> None:
    lookup = service.lookup

    # plain functions: FastAPI runs them in threads
    @api.get("/entities/{title:path}/neighbors", responses=_MISSING, tags=["look-ups"])
    def neighbors(title: Title, count: Count = 10) -> NeighborsReply:
        """The entities whose vectors are nearest to an entity's."""
        entity = lookup.entity(title)
        return NeighborsReply.model_validate(
            {"entity": asdict(entity), "neighbors": map(asdict, lookup.related([entity.title], count=count))}
        )

    @api.get("/entities/{title:path}", responses=_MISSING, tags=["look-ups"])
    def entity(title: Title) -> EntityReply:
        """An entity by its title or a redirect to it."""
        return EntityReply.model_validate(asdict(lookup.entity(title)))

    @api.get("/mentions/{surface:path}", tags=["look-ups"])
    def mention(surface: Title, count: Count = 10) -> MentionReply:
        """What a name can mean, with p(e|m); where it is not known, what resembles it."""
        name = lookup.name(surface)
        alike = [] if name.candidates else lookup.resembling(surface, count=count)
        found = asdict(name) | {"candidates": map(asdict, name.candidates[:count]), "resembling": map(asdict, alike)}
        return MentionReply.model_validate(found)

    @api.post("/relatedness", responses=_MISSING, tags=["look-ups"])
    def relatedness(body: RelatednessRequest) -> RelatednessReply:
        """How related the entities of each pair are."""
        return RelatednessReply(similarities=[lookup.relatedness(*pair) for pair in body.pairs])

    @api.post("/search", responses=_MISSING, tags=["look-ups"])
    def search(body: SearchRequest) -> SearchReply:
        """Entities near to others, to a text, or to the mix; and entities whose names resemble a name."""
        is_mix = bool(body.titles or body.text)
        if not is_mix and not body.name:
            raise DeepEdError("Give titles, a text or a name to search for.")
        related = lookup.related(body.titles, body.text, count=body.count) if is_mix else []
        alike = lookup.resembling(body.name, count=body.count) if body.name else []
        return SearchReply.model_validate({"related": map(asdict, related), "resembling": map(asdict, alike)})


def _add_checks(api: FastAPI, service: LinkingService) -> None:
    health = Health(status="ok", entities=len(service.lookup.catalogue), version=Version(**service.version))

    @api.get("/healthz", tags=["operation"])
    def healthz() -> Health:
        """Links a sentence whose answer is known."""
        service.check()
        return health

    @api.get("/readyz", tags=["operation"])
    async def readyz() -> Health:
        """The same by the way that requests take: 503 while too many wait."""
        await service.check_through_queue()
        return health

    @api.get("/version", tags=["operation"])
    def version() -> Version:
        """Of the software, the model and the knowledge base; also in every reply, as Deeped-Version."""
        return health.version

    @api.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
    async def prometheus() -> str:
        """What all replicas have counted, for Prometheus."""
        return await metrics.gather()


def _add_page(api: FastAPI) -> None:
    @api.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    api.mount("/page", StaticFiles(directory=PAGE))


# -- errors


def _add_errors(api: FastAPI) -> None:
    api.add_exception_handler(RequestValidationError, _bad_request)  # type: ignore[arg-type]
    api.add_exception_handler(UnknownEntityError, lambda _, error: _refusal(404, str(error)))
    api.add_exception_handler(DeepEdError, lambda _, error: _refusal(422, str(error)))
    api.add_exception_handler(OverloadedError, _overloaded)
    api.add_exception_handler(Exception, _failure)


def _refusal(status: int, detail: Any, **headers: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, {name.replace("_", "-"): value for name, value in headers.items()})


async def _bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
    """Without FastAPI's echo of the input, which may hold what JSON cannot (NaN, half a surrogate pair)."""
    problems = [{"where": _printable(problem["loc"]), "problem": problem["msg"]} for problem in error.errors()]
    is_large = any(problem["type"] in _TOO_LARGE for problem in error.errors())
    return _refusal(413 if is_large else 422, problems[:20])


def _printable(where: tuple[int | str, ...]) -> list[int | str]:
    """Names of fields are the client's own and may be no text."""
    return [part if isinstance(part, int) else part.encode(errors="replace").decode()[:100] for part in where]


async def _overloaded(_: Request, __: Exception) -> JSONResponse:
    return _refusal(503, "Too many requests are waiting. Try again shortly.", Retry_After=str(RETRY_AFTER_S))


async def _failure(_: Request, error: Exception) -> JSONResponse:
    _log.exception("a request failed", exc_info=error)
    return _refusal(500, "The server failed at this request; its log says why.")
