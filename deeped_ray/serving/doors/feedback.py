"""Corrections of answers: `POST /feedback` takes documents in the layout of our data sets, and keeps them for training.

    KB/feedback/1763409600123456789-9f3a2c11.jsonl      {"name": ..., "text": ..., "mentions": [{"start": ..., ...}]}

Files are only ever added, so that replicas need no lock, on S3 either. `deeped feedback` gathers them into one data set, of
which the last word on a mention holds.
"""

import asyncio
import time
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, RootModel

from deeped_ray.evaluation.jsonl import FEEDBACK
from deeped_ray.linking.lookup import Lookup
from deeped_ray.serving.schemas import MAX_DOCUMENTS, Closed, Error, Offset, SearchText, Title, parse_lookup
from deeped_ray.storage.location import Location, patience
from deeped_ray.types import DeepEdError

if TYPE_CHECKING:
    from deeped_ray.serving.service import LinkingService

PATIENCE_S = 4.0
MAX_CORRECTED = 1000
_EXAMPLE = {"text": "Montreal met Toronto.", "mentions": [{"start": 0, "end": 8, "title": "Montreal Canadiens"}]}
_RIGHTS: dict[int | str, dict[str, Any]] = {
    403: {"model": Error, "description": "the token may read only, or the server takes no corrections"}
}


class CorrectedMention(Closed):
    start: Offset
    end: Offset
    title: Title | None = Field(
        description="of the right entity, or its Wikidata id; null: it is none of this knowledge base"
    )


class Corrected(Closed):
    """A text with what some of its mentions mean."""

    text: SearchText
    mentions: Annotated[list[CorrectedMention], Field(min_length=1, max_length=MAX_CORRECTED, fail_fast=True)]


class ManyCorrected(RootModel[list[Corrected]]):
    root: list[Corrected] = Field(min_length=1, max_length=MAX_DOCUMENTS, fail_fast=True)


class FeedbackReply(BaseModel):
    kept: int = Field(description="mentions")
    file: str = Field(description="in the knowledge base")


class FeedbackState(BaseModel):
    accepted: bool = Field(description="whether this server takes corrections, from those who have the writers' token")


def add_routes(api: FastAPI, service: "LinkingService", *, has_writers: bool) -> None:
    body = {"application/json": {"schema": {"example": _EXAMPLE}}}

    @api.post("/feedback", responses=_RIGHTS, openapi_extra={"requestBody": {"content": body}}, tags=["corrections"])
    async def post_feedback(request: Request) -> FeedbackReply:
        """Say what mentions of a text mean, or of many texts. The next training can learn it; answers stay as they are."""
        given = await request.body()

        def keep() -> FeedbackReply:
            is_list = given.lstrip()[:1] == b"["
            asked = parse_lookup(ManyCorrected, given).root if is_list else [parse_lookup(Corrected, given)]
            lines = [checked(each, service.lookup) for each in asked]
            with patience(PATIENCE_S):
                name = _write(service.live.home, lines)
            return FeedbackReply(kept=sum(len(each.mentions) for each in asked), file=f"{FEEDBACK}/{name}")

        return await asyncio.to_thread(keep)

    @api.get("/feedback", tags=["corrections"])
    def feedback() -> FeedbackState:
        """Whether corrections are taken here."""
        return FeedbackState(accepted=has_writers)


def checked(given: Corrected, lookup: Lookup) -> dict[str, Any]:
    """A document of a data set. Refuses what training would refuse, and titles that the knowledge base lacks."""
    mentions, end = [], 0
    for each in sorted(given.mentions, key=lambda mention: mention.start):
        if not end <= each.start < each.end <= len(given.text):
            raise DeepEdError(
                f"Mention {each.start} to {each.end} overlaps another, is empty, or does not lie within the text,"
                f" which has {len(given.text)} characters."
            )
        title = None if each.title is None else lookup.entity(each.title).title
        mentions.append({"start": each.start, "end": each.end, "title": title})
        end = each.end
    name = blake2b(given.text.encode(), digest_size=6).hexdigest()
    return {"name": f"feedback-{name}", "text": given.text, "mentions": mentions}


def _write(home: Location, lines: Sequence[dict[str, Any]]) -> str:
    """Returns the name, by which files are in the order of time."""
    name = f"{time.time_ns():019d}-{uuid.uuid4().hex[:8]}.jsonl"
    folder = home / FEEDBACK
    folder.make_folder()
    (folder / name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return name
