"""The tools that language models call: what they take, what they answer. Short, since every word costs the model."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel, Field, ValidationError

from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.linking.lookup import Lookup
from deeped_ray.serving.batcher import OverloadedError
from deeped_ray.serving.schemas import Closed, LinkRequest, Title
from deeped_ray.serving.turns import DeadlineError
from deeped_ray.types import Candidate, DeepEdError, Entity

if TYPE_CHECKING:
    from deeped_ray.serving.doors.mcp import Knows

MAX_CHARACTERS = 20_000
MAX_LISTED = 100
"""Mentions in an answer."""
SURE = 0.9
"""Above this probability, the second-best candidate is not worth its words."""


class ToolError(Exception):
    """What the model should do otherwise."""


class LinkText(Closed):
    text: str = Field(description=f"as it is, at most {MAX_CHARACTERS:,} characters")
    threshold: float = Field(default=0.0, ge=0, le=1, description="leave out answers below this probability")


class FindEntity(Closed):
    name: Title
    context: str = Field(default="", description="the sentence or row that the name stands in")
    count: int = Field(default=5, ge=1, le=20)


class RelatedEntities(Closed):
    entity: Title = Field(description="title or Wikidata id")
    count: int = Field(default=10, ge=1, le=50)


class Named(BaseModel):
    title: str
    wikidata: str | None = None


class Meaning(Named):
    url: str
    probability: float


class Linked(BaseModel):
    name: str
    start: int = Field(description="first character")
    entity: Meaning
    instead: str | None = Field(default=None, description="second-best entity, if the best is doubtful")


class LinkedText(BaseModel):
    mentions: list[Linked]
    left_out: int = Field(description="mentions beyond the first, or without an entity")


class Entities(BaseModel):
    entities: list[Meaning]
    none: float | None = Field(default=None, description="probability that it is none of these")
    note: str | None = None


class Similar(Named):
    similarity: float


class Related(BaseModel):
    entity: str
    related: list[Similar]


async def link_text(knows: "Knows", asked: LinkText) -> LinkedText:
    _check_length("text", asked.text)
    found = await knows.link(_request(asked.text, threshold=asked.threshold, top=2))
    linked = [
        Linked(
            name=each.surface,
            start=each.start,
            entity=_meaning(each.entity),
            instead=each.candidates[1].title if each.probability < SURE and len(each.candidates) > 1 else None,
        )
        for each in found
        if each.entity
    ]
    return LinkedText(mentions=linked[:MAX_LISTED], left_out=len(found) - len(linked[:MAX_LISTED]))


async def find_entity(knows: "Knows", asked: FindEntity) -> Entities:
    _check_length("context", asked.context)
    if not asked.name.strip():
        raise ToolError("The name is empty.")
    if not asked.context.strip():
        return await knows.look_up(lambda lookup: _by_name(lookup, asked.name, asked.count))
    place = asked.context.find(asked.name)
    text = asked.context if place >= 0 else f"{asked.name}. {asked.context}"
    start = max(place, 0)
    span = start, start + len(asked.name)
    # with the other names around it, if it is found among them: they decide together
    together = await knows.link(_request(text, top=asked.count))
    found = next((each for each in together if (each.start, each.end) == span), None)
    if found is None:
        (found,) = await knows.link(_request(text, spans=[span], top=asked.count))
    meanings = [_meaning(each) for each in found.candidates[: asked.count]]
    return Entities(entities=meanings, none=round(found.none_probability, 3), note=found.reason)


def _by_name(lookup: Lookup, name: str, count: int) -> Entities:
    if number_of(name) is not None and lookup.catalogue.identify(name) is not None:
        return Entities(entities=[_of_entity(lookup.entity(name), 1.0)])
    if senses := lookup.mention(name).candidates[:count]:
        return Entities(
            entities=[_of_entity(each, each.prior) for each in senses],
            note="How often the name means each. Give a context to decide.",
        )
    alike = lookup.resembling(name, count=count)
    note = "The name is not known. These have names like it; probability is the resemblance."
    return Entities(entities=[_of_entity(each, each.resemblance) for each in alike], note=note)


async def related_entities(knows: "Knows", asked: RelatedEntities) -> Related:
    def find(lookup: Lookup) -> Related:
        entity = lookup.entity(asked.entity)
        near = lookup.related([entity.title], count=asked.count)
        similar = [Similar(title=e.title, wikidata=e.wikidata, similarity=round(e.similarity, 3)) for e in near]
        return Related(entity=entity.title, related=similar)

    return await knows.look_up(find)


def _request(text: str, *, top: int, threshold: float = 0.0, spans: list[tuple[int, int]] | None = None) -> LinkRequest:
    return LinkRequest(text=text, spans=spans, top=top, threshold=threshold, explain=False)


def _check_length(what: str, text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise ToolError(f"The {what} has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}. Send it in pieces.")


def _meaning(entity: Candidate) -> Meaning:
    return Meaning(
        title=entity.title, wikidata=entity.wikidata, url=entity.url, probability=round(entity.probability, 3)
    )


def _of_entity(entity: Entity, probability: float) -> Meaning:
    return Meaning(title=entity.title, wikidata=entity.wikidata, url=entity.url, probability=round(probability, 3))


@dataclass(frozen=True)
class Tool:
    about: str
    takes: type[BaseModel]
    gives: type[BaseModel]
    run: Callable[["Knows", Any], Awaitable[BaseModel]]

    @property
    def input_schema(self) -> dict[str, Any]:
        return {**_short(self.takes.model_json_schema())}

    @property
    def output_schema(self) -> dict[str, Any]:
        return {**_short(self.gives.model_json_schema())}


TOOLS = {
    "link_text": Tool(
        "Find the names in a text and say which entity each means, by the words around it.",
        LinkText,
        LinkedText,
        link_text,
    ),
    "find_entity": Tool(
        "Say what one name can mean, likeliest first. With a context, what it means there.",
        FindEntity,
        Entities,
        find_entity,
    ),
    "related_entities": Tool(
        "List the entities nearest to an entity in meaning.", RelatedEntities, Related, related_entities
    ),
}


def _short(schema: Any) -> Any:
    """Without the titles that pydantic gives to everything."""
    if isinstance(schema, list):
        return [_short(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _short(of) for name, of in value.items()} if key in ("properties", "$defs") else _short(value)
        for key, value in schema.items()
        if key != "title"
    }


async def call(knows: "Knows", name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The answer of a tool as text and as data. Raises ToolError, whose words are for the model."""
    if (tool := TOOLS.get(name)) is None:
        raise ToolError(f"No tool {name[:60]!r}. There are {', '.join(TOOLS)}.")
    try:
        answer = await tool.run(knows, tool.takes.model_validate(dict(arguments)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"])
        raise ToolError(f"{where}: {first['msg']}.") from error
    except OverloadedError as error:
        raise ToolError("The server is busy. Try again in a few seconds.") from error
    except DeadlineError as error:
        raise ToolError("The answer took too long. Send less at once.") from error
    except DeepEdError as error:
        raise ToolError(str(error)) from error
    data = answer.model_dump(exclude_none=True)
    return orjson.dumps(data).decode(), data
