"""The linker behind Ray Serve.

serve run serve.app:build kb=/abs/KB          # then POST /link and GET /healthz on 127.0.0.1:8000
"""

from typing import Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from ray import serve
from ray.serve import Application

from deeped_ray import __version__
from deeped_ray.linking.linker import Linker
from deeped_ray.types import DeepEdError
from serve.schemas import Health, LinkedMention, LinkRequest, LinkResponse

api = FastAPI(title="deeped-ray", version=__version__, description="Entity linking that explains its answers.")


@api.exception_handler(RequestValidationError)
async def explain_bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
    """422 without FastAPI's echo of the input, which may hold what JSON cannot (NaN, half a surrogate pair)."""
    problems = [{"where": list(problem["loc"]), "problem": problem["msg"]} for problem in error.errors()]
    return JSONResponse({"detail": problems}, status_code=422)


class AppArgs(BaseModel):
    """Arguments of `build`, given as key=value to `serve run`."""

    kb: str
    model: Literal["prior", "local", "global"] = "global"
    num_replicas: int = 1


@serve.deployment(max_ongoing_requests=32, max_queued_requests=256, health_check_period_s=10)
@serve.ingress(api)
class LinkerService:
    """One replica: a linker over memory-mapped arrays, shared with the other replicas of its node."""

    def __init__(self, args: AppArgs) -> None:
        self._linker = Linker.open(args.kb, args.model)
        self._model = args.model
        self.check_health()

    def check_health(self) -> None:
        """Ray Serve restarts a replica for which this raises."""
        catalogue = self._linker.inputs.catalogue
        title = catalogue.title(0)
        self._linker.link(title, [(0, len(title))])

    # Plain functions, not coroutines: FastAPI runs them in threads, so that linking never blocks the event loop.
    @api.post("/link")
    def link(self, request: LinkRequest) -> LinkResponse:
        """Link the given spans of a text to entities."""
        try:
            predictions = self._linker.link(request.text, request.spans)
        except DeepEdError as error:
            raise HTTPException(status_code=422, detail=str(error)) from error
        return LinkResponse(mentions=[LinkedMention.of(prediction, top=request.top) for prediction in predictions])

    @api.get("/healthz")
    def healthz(self) -> Health:
        """Links a known title; answers once the replica can do its work."""
        self.check_health()
        return Health(status="ok", model=self._model, entities=len(self._linker.inputs.catalogue))


def build(args: AppArgs) -> Application:
    """The application, for `serve run serve.app:build kb=...` and for a Serve config file."""
    application: Application = LinkerService.options(num_replicas=args.num_replicas).bind(args)  # type: ignore[attr-defined]
    return application
