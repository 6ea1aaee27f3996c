"""Entities that clients add, change and take off while the server runs: routes, and following what others have changed.

A change is in the storage of the knowledge base when its call returns. The replica that took it answers with it at once;
the others look for changes every POLL_S seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, Field

from deeped_ray.corpus.entity_files import entity_of
from deeped_ray.knowledge.changes import Change, Recorded
from deeped_ray.linking.live import Live
from deeped_ray.serving.schemas import Error, Title, Version
from deeped_ray.storage.location import patience
from deeped_ray.types import DeepEdError, UnknownEntityError

if TYPE_CHECKING:
    from deeped_ray.serving.service import LinkingService

POLL_S = 1.0
PATIENCE_S = 4.0
"""How long a client waits for a storage that is away."""
MOST_AT_ONCE = 10_000
_KEPT = ("id", "title", "aliases", "description", "examples", "url", "wikidata", "type")
_log = logging.getLogger(__name__)
_EXAMPLE = {"title": "Falcon 7", "aliases": ["Falcon"], "description": "A coffee grinder of steel."}
_RIGHTS: dict[int | str, dict[str, Any]] = {
    403: {"model": Error, "description": "the token may read only, or the server takes no changes"}
}


class Changed(BaseModel):
    id: str
    title: str | None = Field(description="of the entity; null if it was taken off")
    number: int = Field(description="changes are counted; `changed_since` takes such a number")
    time: str


class ChangesReply(BaseModel):
    changed: list[Changed]
    shortened: list[str] = Field(
        default=[], description="ids of entities of which more was given than is kept; the rest is left out"
    )
    version: Version


async def follow(live: Live) -> None:
    """Look for changes of others, for ever. A storage that is away for a while ends nothing."""
    is_well = True
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await asyncio.to_thread(live.poll)
            is_well = True
        except DeepEdError as error:
            if is_well:
                _log.warning("cannot read changes, trying again: %s", error)
            is_well = False


def add_changes(api: FastAPI, service: "LinkingService") -> None:
    @api.put("/entities/{id:path}", responses=_RIGHTS, openapi_extra=_body({"example": _EXAMPLE}), tags=["changes"])
    async def put_entity(id: Title, request: Request) -> ChangesReply:
        """Add an entity, or change it: what is given replaces an earlier change to the same id."""
        body = await request.body()
        return await _write(service, lambda: _changes(service.live, [{**_object(_read(body), id), "id": id}]))

    @api.delete("/entities/{id:path}", responses=_RIGHTS, tags=["changes"])
    async def delete_entity(id: Title) -> ChangesReply:
        """Take an entity off: by its id or title, one of the knowledge base or one that was added."""
        return await _write(service, lambda: ([Change(_known_id(service, id), None)], []))

    @api.post("/entities", responses=_RIGHTS, openapi_extra=_body({"example": [_EXAMPLE]}), tags=["changes"])
    async def post_entities(request: Request) -> ChangesReply:
        """Add or change many entities at once: all of them, or none if one is wrong."""
        body = await request.body()
        return await _write(service, lambda: _changes(service.live, _list(_read(body))))

    @api.get("/entities", tags=["changes"])
    def changed(
        changed_since: Annotated[int, Query(ge=0, description="number of the first change that is asked for")] = 0,
    ) -> ChangesReply:
        """What was added, changed or taken off: the last change of each entity, in order."""
        return _reply(service, service.live.changes.since(changed_since))


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {}, **schema}}}}


async def _write(service: "LinkingService", read: Callable[[], tuple[Sequence[Change], list[str]]]) -> ChangesReply:
    """In a thread: a large list takes a second to read, and a storage may be slow."""

    def write() -> tuple[list[Recorded], list[str]]:
        changes, shortened = read()
        with patience(PATIENCE_S):
            return service.live.write(changes), shortened

    return _reply(service, *await asyncio.to_thread(write))


def _reply(service: "LinkingService", recorded: Sequence[Recorded], shortened: Sequence[str] = ()) -> ChangesReply:
    rows = [
        Changed(id=each.change.id, title=each.change.title, number=each.number, time=each.time) for each in recorded
    ]
    return ChangesReply(changed=rows, shortened=list(shortened), version=Version(**service.version))


# -- bodies


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DeepEdError(f"The body is not JSON: {error}.") from None


def _object(values: Any, name: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise DeepEdError(f"{name}: expected an object with title, aliases and description.")
    return values


def _list(rows: Any) -> list[Any]:
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_AT_ONCE:
        raise DeepEdError(f"Expected a list of 1 to {MOST_AT_ONCE:,} entities.")
    return rows


def _changes(live: Live, rows: Sequence[Any]) -> tuple[list[Change], list[str]]:
    """Checked before anything is written, and the ids of which not everything is kept."""
    owners = {each.change.title: other for other, each in live.changes.latest.items()}
    changes, shortened = [], []
    for number, row in enumerate(rows, start=1):
        values = {name: value for name, value in _object(row, f"Entity {number}").items() if name in _KEPT}
        own_id = str(values.get("id") or values.get("title") or "").strip()
        known = live.lookup.catalogue.find(own_id) if not values.get("title") else None
        if known is not None:  # its id stands for its title, also when the change is folded into the parts
            values["title"] = live.lookup.catalogue.title(known)
        entity = entity_of(values, where=f"Entity {own_id[:60]!r}")
        if owners.setdefault(entity.title, own_id) != own_id:
            raise DeepEdError(
                f"The title {entity.title!r} belongs to {owners[entity.title]!r}. Tell them apart, as in 'Smith (sales)'."
            )
        shortened += [own_id] if entity.is_shortened else []
        changes.append(Change(own_id, values))
    return changes, shortened


def _known_id(service: "LinkingService", name: str) -> str:
    """The id under which an entity was added, or the title of one that the knowledge base has."""
    added = service.live.changes.find(name)
    if added is None and service.lookup.catalogue.find(name) is None:
        raise UnknownEntityError(f"No entity {name!r} in this knowledge base.")
    return added or name
