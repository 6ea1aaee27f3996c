"""What the Reconciliation Service API asks of a knowledge base: candidates for a row, entities by prefix, values of properties.

A row becomes a short text: its name, then the values of its other columns. Values that look like names are mentions too, and
decide with the name which entity is meant. Entities are called by their titles.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, RootModel

from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.linking.detection import Span
from deeped_ray.linking.lookup import Lookup
from deeped_ray.serving.schemas import LinkRequest, Title
from deeped_ray.serving.work import Predictions
from deeped_ray.types import Candidate, DeepEdError, Entity, EntityDetails, Prediction

MAX_IDS = 1000
MOST = 100
LONGEST_NAME = 100
"""Characters of a value that may be a name; a longer one is text around the row's name."""
SUGGESTED = 10
MATCH = 0.9
"""From this probability on, OpenRefine may take the candidate without asking."""
ENTITY, PERSON = {"id": "entity", "name": "Entity"}, {"id": "person", "name": "Person"}
PROPERTIES = {
    "wikidata": "Wikidata id",
    "url": "Page",
    "links": "Links to it",
    "words": "Words on its page",
    "names": "Names",
    "related": "Related entities",
}


class Property(BaseModel):
    pid: str = Field(max_length=LONGEST_NAME)
    v: Any


class RowQuery(BaseModel):
    query: Annotated[str, Field(max_length=500)] = ""
    type: str | list[str] | None = None
    limit: Annotated[float, Field(ge=1)] | None = None
    properties: list[Property] = Field(default=[], max_length=50, fail_fast=True)

    @property
    def values(self) -> list[str]:
        """Of the other columns, as text. An entity that was reconciled before counts by its name."""
        given = [each.v for each in self.properties]
        flat = [value for each in given for value in (each if isinstance(each, list) else [each])]
        texts = (value.get("name") or value.get("id") if isinstance(value, dict) else value for value in flat)
        return [text for each in texts if each is not None and (text := str(each).strip())]

    @property
    def most(self) -> int:
        return min(int(self.limit or SUGGESTED), MOST)

    @property
    def is_for_persons(self) -> bool:
        return PERSON["id"] in ([self.type] if isinstance(self.type, str) else self.type or ())


class RowQueries(RootModel[dict[str, RowQuery]]):
    pass


class Extension(BaseModel):
    ids: list[Title] = Field(max_length=MAX_IDS, fail_fast=True)
    properties: list[dict[str, Any]] = Field(max_length=50, fail_fast=True)


def request_of(row: RowQuery) -> LinkRequest:
    text, spans = row_text(row)
    return LinkRequest(text=text, spans=spans, top=MOST if row.is_for_persons else row.most, explain=False)


def row_text(row: RowQuery) -> tuple[str, list[Span]]:
    """The text of a row, and where its names are: the first is the one that is asked for."""
    name, text, spans = row.query.strip(), "", list[Span]()
    if not name and not row.values:
        raise DeepEdError("A query needs a `query`, or `properties`.")
    for value in [name, *row.values]:
        if value and (value is name or _is_name(value)):
            spans.append((len(text), len(text) + len(value)))
        text += f"{value}, " if value else ""
    return text.removesuffix(", "), spans


def _is_name(value: str) -> bool:
    """Names begin with a capital, or with a letter of a script that has none."""
    return len(value) <= LONGEST_NAME and value[0].isalpha() and not value[0].islower()


def write_rows(asked: Mapping[str, RowQuery], lookup: Lookup, answers: Sequence[Predictions]) -> Iterator[bytes]:
    yield b"{"
    for place, ((key, row), linked) in enumerate(zip(asked.items(), answers, strict=True)):
        found = _candidates(lookup, row, linked)
        yield b"," if place else b""
        yield orjson.dumps(key) + b":" + orjson.dumps({"result": found})
    yield b"}"


def _candidates(lookup: Lookup, row: RowQuery, linked: Predictions) -> list[dict[str, Any]]:
    name = row.query.strip()
    if number_of(name) is not None and lookup.catalogue.identify(name) is not None:
        return [{**_item(lookup, lookup.entity(name)), "score": 100.0, "match": True}]
    if not name:
        near = lookup.related(text=row_text(row)[0], count=row.most)
        return [{**_item(lookup, each), "score": round(100 * each.similarity, 1), "match": False} for each in near]
    found = [_scored(lookup, each, linked[0]) for each in linked[0].candidates]
    if row.is_for_persons:
        found = [each for each in found if PERSON in each["type"]]
    return found[: row.most]


def _scored(lookup: Lookup, candidate: Candidate, answer: Prediction) -> dict[str, Any]:
    parts = {"prior": candidate.prior, "local": candidate.local, "coherence": candidate.coherence}
    is_match = answer.entity is not None and candidate.title == answer.entity.title and answer.probability >= MATCH
    return {
        **_item(lookup, candidate),
        "score": round(100 * candidate.probability, 1),
        "match": is_match,
        "features": [{"id": name, "value": round(value, 4)} for name, value in parts.items() if value is not None],
    }


def _item(lookup: Lookup, entity: Entity | Candidate) -> dict[str, Any]:
    return {"id": entity.title, "name": entity.title, "type": _types(lookup, entity.title)}


def _types(lookup: Lookup, title: str) -> list[dict[str, str]]:
    found = lookup.catalogue.find(title)
    return [ENTITY, PERSON] if found is not None and lookup.catalogue.is_person[found] else [ENTITY]


# -- entities


def suggested(lookup: Lookup, prefix: str, *, cursor: int) -> list[dict[str, Any]]:
    """Who bears the name or id, whose titles begin so, and whose names are like it."""
    if not prefix.strip():
        return []
    count, found = cursor + SUGGESTED, list[Entity]()
    if lookup.catalogue.identify(prefix) is not None:
        found.append(lookup.entity(prefix))
    found += [*lookup.mention(prefix).candidates[:count], *lookup.starting_with(prefix, count=count)]
    if len(found) < count:
        found += lookup.resembling(prefix, count=count)
    unique = {each.title: each for each in found}
    return [
        {
            "id": each.title,
            "name": each.title,
            "description": each.wikidata or each.url,
            "notable": _types(lookup, each.title),
        }
        for each in [*unique.values()][cursor:count]
    ]


def extension(lookup: Lookup, asked: Extension) -> dict[str, Any]:
    """Values of properties. An entity that is not known has none."""
    names = [str(each.get("id")) for each in asked.properties]
    if unknown := [name for name in names if name not in PROPERTIES]:
        raise DeepEdError(f"No property {unknown[0]!r}. There are {', '.join(PROPERTIES)}.")
    meta = [{"id": name, "name": PROPERTIES[name], **({"type": ENTITY} if name == "related" else {})} for name in names]
    rows = {}
    for each in asked.ids:
        known = lookup.entity(each) if lookup.catalogue.identify(each) is not None else None
        rows[each] = {name: _values(lookup, known, name) if known else [] for name in names}
    return {"meta": meta, "rows": rows}


def _values(lookup: Lookup, entity: EntityDetails, name: str) -> list[dict[str, Any]]:
    if name == "related":
        near = lookup.related([entity.title], count=5)
        return [{"id": each.title, "name": each.title} for each in near]
    if name == "names":
        return [{"str": each.name} for each in lookup.names(entity.title, count=10)]
    if name in ("links", "words"):
        return [{"int": entity.num_links if name == "links" else entity.num_words}]
    value = entity.wikidata if name == "wikidata" else entity.url
    return [{"str": value}] if value else []


_CARD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
:root {{ color-scheme: light dark }} body {{ font: 14px/1.45 system-ui, sans-serif; margin: 12px }}
h1 {{ font-size: 17px; margin: 0 0 4px }} p {{ margin: 4px 0 }} .quiet {{ opacity: .7 }}
</style></head><body><h1>{title}</h1><p class="quiet">{facts}</p><p>{names}</p><p>{related}</p></body></html>"""


def preview_of(lookup: Lookup, title: str) -> str:
    entity = lookup.entity(title)
    facts = [entity.wikidata, f"{entity.num_links:,} links", entity.url]
    names = ", ".join(each.name for each in lookup.names(entity.title, count=5))
    related = ", ".join(each.title for each in lookup.related([entity.title], count=5))
    return _CARD.format(
        title=escape(entity.title),
        facts=escape(" · ".join(filter(None, facts))),
        names=escape(f"Also called {names}" if names else ""),
        related=escape(f"Near {related}" if related else ""),
    )
