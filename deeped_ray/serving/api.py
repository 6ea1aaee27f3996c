"""The HTTP interface: FastAPI routes around a `LinkingService`, the same under Ray Serve and under plain uvicorn."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.middleware import Middleware

from deeped_ray import __version__
from deeped_ray.linking.detection import Span
from deeped_ray.linking.lookup import UnknownEntityError
from deeped_ray.serving import metrics
from deeped_ray.serving.batcher import OverloadedError
from deeped_ray.serving.guard import Guard
from deeped_ray.serving.nif import read_nif, write_nif
from deeped_ray.serving.rel import RelMention, RelRequest, rel_answer
from deeped_ray.serving.schemas import (
    MAX_BODY_BYTES,
    Count,
    EntityReply,
    Error,
    Health,
    LinkRequest,
    LinkRequests,
    LinkResponse,
    MentionReply,
    NeighborsReply,
    RelatednessReply,
    RelatednessRequest,
    SearchReply,
    SearchRequest,
    Title,
    Version,
)
from deeped_ray.serving.service import Job, LinkingService, Predictions, TooLargeError, UnhealthyError, layers
from deeped_ray.types import DeepEdError, Document

PAGE = Path(__file__).parent / "page"
RETRY_AFTER_S = 1
MAX_PROBLEMS = 20
_TOO_LARGE = ("string_too_long", "too_long")
_TOO_MANY_PROBLEMS = {
    "loc": (),
    "type": "many",
    "msg": f"more than {MAX_PROBLEMS} problems; see /docs for what is expected",
}
Model = TypeVar("Model", bound=BaseModel)
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
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
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
    _describe(api)
    return api


def _add_linking(api: FastAPI, service: LinkingService) -> None:
    @api.post(
        "/link",
        response_model=LinkResponse | list[LinkResponse],
        openapi_extra=_body(LinkRequest, LinkRequests),
        tags=["linking"],
    )
    async def link(request: Request) -> Response:
        """Link one document or a list of them. Mentions are given as spans, or found in the text."""
        body = await request.body()
        is_list = body.lstrip()[:1] == b"["
        asked = _parse(LinkRequests, body).root if is_list else [_parse(LinkRequest, body)]
        documents = await service.documents([(each.text, each.spans) for each in asked])

        def write(answers: list[Predictions]) -> bytes:
            replies = service.write_json(asked, answers)
            return orjson.dumps(replies if is_list else replies[0])

        thresholds, explain = [each.threshold for each in asked], any(each.explain for each in asked)
        job = Job(documents, write, thresholds=thresholds, explain=explain)
        return Response(await service.answer(job), media_type="application/json")

    @api.post("/", response_model=list[RelMention], openapi_extra=_body(RelRequest), tags=["linking"])
    async def link_for_rel(request: Request) -> Response:
        """REL's interface: `[start, length, mention, entity, confidence, detection confidence, tag]` for each mention."""
        asked = _parse(RelRequest, await request.body())
        documents = await _in_layers(service, asked.text, asked.to_link)
        job = Job(documents, lambda answers: orjson.dumps(rel_answer(_in_order(answers))))
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
        documents = await _in_layers(service, asked.text, asked.spans)

        def write(answers: list[Predictions]) -> bytes:
            found = _in_order(answers)
            return write_nif(asked, found, entity_uri=lambda entity: entity.url, confidence=confidence).encode()

        return Response(await service.answer(Job(documents, write)), media_type="text/turtle; charset=utf-8")


async def _in_layers(service: LinkingService, text: str, spans: Sequence[Span] | None) -> list[Document]:
    """A document for every layer of spans that do not overlap; one where mentions are to be found."""
    return await service.documents([(text, None)] if spans is None else [(text, layer) for layer in layers(spans)])


def _in_order(answers: Sequence[Predictions]) -> Predictions:
    return sorted((answer for layer in answers for answer in layer), key=lambda answer: (answer.start, -answer.end))


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

    @api.post("/relatedness", responses=_MISSING, openapi_extra=_body(RelatednessRequest), tags=["look-ups"])
    async def relatedness(request: Request) -> RelatednessReply:
        """How related the entities of each pair are."""
        asked = _parse(RelatednessRequest, await request.body())
        similarities = await asyncio.to_thread(lambda: [lookup.relatedness(*pair) for pair in asked.pairs])
        return RelatednessReply(similarities=similarities)

    @api.post("/search", responses=_MISSING, openapi_extra=_body(SearchRequest), tags=["look-ups"])
    async def search(request: Request) -> SearchReply:
        """Entities near to others, to a text, or to the mix; and entities whose names resemble a name."""
        asked = _parse(SearchRequest, await request.body())
        is_mix = bool(asked.titles or asked.text)
        if not is_mix and not asked.name:
            raise DeepEdError("Give titles, a text or a name to search for.")

        def find() -> SearchReply:
            related = lookup.related(asked.titles, asked.text, count=asked.count) if is_mix else []
            alike = lookup.resembling(asked.name, count=asked.count) if asked.name else []
            return SearchReply.model_validate({"related": map(asdict, related), "resembling": map(asdict, alike)})

        return await asyncio.to_thread(find)


def _add_checks(api: FastAPI, service: LinkingService) -> None:
    health = Health(status="ok", entities=len(service.lookup.catalogue), version=Version(**service.version))

    @api.head("/healthz", include_in_schema=False)
    @api.get("/healthz", tags=["operation"])
    async def healthz() -> Health:
        """Links a sentence whose answer is known; 503 if it comes out otherwise."""
        await service.check_in_thread()
        return health

    @api.head("/readyz", include_in_schema=False)
    @api.get("/readyz", tags=["operation"])
    async def readyz() -> Health:
        """The same, and 503 while too many requests wait."""
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
    @api.head("/", include_in_schema=False)
    @api.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    api.mount("/page", StaticFiles(directory=PAGE))


# -- bodies


def _body(*models: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that `_parse` reads."""
    references = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": references}}}}}


def _parse(model: type[Model], body: bytes) -> Model:
    """JSON whatever the Content-Type says, as REL's server takes it, and several times faster than by FastAPI."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MAX_PROBLEMS:
            raise RequestValidationError([_TOO_MANY_PROBLEMS]) from None
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None


def _describe(api: FastAPI) -> None:
    """Add the bodies that FastAPI does not know of to what /openapi.json says."""
    bodies = (LinkRequest, LinkRequests, RelRequest, RelatednessRequest, SearchRequest)
    _, schemas = models_json_schema(
        [(model, "validation") for model in bodies], ref_template="#/components/schemas/{model}"
    )
    described = api.openapi()
    described["components"]["schemas"] |= schemas["$defs"]


# -- errors


def _add_errors(api: FastAPI) -> None:
    api.add_exception_handler(RequestValidationError, _bad_request)  # type: ignore[arg-type]
    api.add_exception_handler(UnknownEntityError, lambda _, error: _refusal(404, str(error)))
    api.add_exception_handler(TooLargeError, lambda _, error: _refusal(413, str(error)))
    api.add_exception_handler(DeepEdError, lambda _, error: _refusal(422, str(error)))
    api.add_exception_handler(UnhealthyError, lambda _, error: _refusal(503, str(error)))
    api.add_exception_handler(OverloadedError, _overloaded)


def _refusal(status: int, detail: Any) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


async def _bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
    """Without FastAPI's echo of the input, which may hold what JSON cannot (NaN, half a surrogate pair)."""
    problems = [{"where": _printable(problem["loc"]), "problem": problem["msg"]} for problem in error.errors()]
    is_large = any(problem["type"] in _TOO_LARGE for problem in error.errors())
    return _refusal(413 if is_large else 422, problems)


def _printable(where: tuple[int | str, ...]) -> list[int | str]:
    """Names of fields are the client's own and may be no text."""
    return [part if isinstance(part, int) else part.encode(errors="replace").decode()[:100] for part in where]


async def _overloaded(_: Request, __: Exception) -> JSONResponse:
    message = "Too many requests are waiting. Try again shortly."
    return JSONResponse({"detail": message}, 503, {"Retry-After": str(RETRY_AFTER_S)})
