"""What goes over HTTP: limits, requests and replies, with examples for the interactive documentation."""

import re
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, ValidationError
from pydantic.config import JsonDict

from deeped_ray.types import Mentions

MAX_BODY_BYTES = 8_000_000
MAX_TEXT_CHARACTERS = 1_000_000
MAX_SEARCH_CHARACTERS = 100_000
MAX_SPANS = MAX_MENTIONS = 10_000
MAX_DOCUMENTS = 256
MAX_NAME_CHARACTERS = 500
MAX_PROBLEMS = 20
MAX_LOOKUP_BYTES = 1_000_000
_LARGE_BODY = 100_000
_MOST = {b"[": 5 * MAX_SPANS, b",": 10 * MAX_SPANS, b"{": MAX_SPANS, b":": MAX_SPANS}
"""How often a sign may stand outside of strings: several times as often as in any request within the other limits."""
_MOST_QUOTES = 2 * MAX_SPANS
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # an unfinished one too, else this would be quadratic

_TEXT = "Scotland beat Australia at Murrayfield."
_WITH_SPANS: JsonDict = {"text": _TEXT, "spans": [[0, 8], [14, 23]]}
_RAW: JsonDict = {"text": _TEXT, "threshold": 0.5}


def _is_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is not text") from None
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS), AfterValidator(_is_text)]
SearchText = Annotated[str, Field(max_length=MAX_SEARCH_CHARACTERS), AfterValidator(_is_text)]
Title = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS), AfterValidator(_is_text)]
Offset = Annotated[int, Field(ge=0, le=MAX_TEXT_CHARACTERS, strict=True)]
Count = Annotated[int, Field(ge=1, le=100)]
Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON, whatever the Content-Type says, as REL's server does; several times faster than FastAPI does."""
    if len(body) > _LARGE_BODY:
        _check_signs(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MAX_PROBLEMS:
            many = f"more than {MAX_PROBLEMS} problems; see /docs for what is expected"
            raise RequestValidationError([{"loc": (), "type": "many", "msg": many}]) from None
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None


def parse_lookup(model: type[Model], body: bytes) -> Model:
    """The same for what the event loop reads itself: it must not be large."""
    if len(body) > MAX_LOOKUP_BYTES:
        problem = f"the body has {len(body):,} bytes; the limit of this route is {MAX_LOOKUP_BYTES:,}"
        raise RequestValidationError([{"loc": (), "type": "too_long", "msg": problem}])
    return parse(model, body)


def _check_signs(body: bytes) -> None:
    """Refuse more lists, keys and values than any request can have: to read a million of them takes a second.

    Counting takes some milliseconds, so it comes first, and without strings only if it has to.
    """
    is_large = body.count(b'"') - body.count(b'\\"') > _MOST_QUOTES
    if not is_large and any(body.count(sign) > most for sign, most in _MOST.items()):
        outside = _STRING.sub(b"", body)
        is_large = any(outside.count(sign) > most for sign, most in _MOST.items())
    if is_large:
        problem = f"far more lists, keys or values than a request can have, which has at most {MAX_SPANS:,} spans"
        raise RequestValidationError([{"loc": (), "type": "too_long", "msg": problem}])


class Closed(BaseModel):
    """A request that refuses unknown options: otherwise a misspelt option would be ignored."""

    model_config = ConfigDict(extra="forbid")


class LinkRequest(Closed):
    """A text, with or without the spans of its mentions."""

    model_config = ConfigDict(json_schema_extra={"examples": [_WITH_SPANS, _RAW]})

    text: Text
    # without fail_fast, a body full of mistakes would give an error for each
    spans: Annotated[list[tuple[Offset, Offset]], Field(max_length=MAX_SPANS, fail_fast=True)] | None = Field(
        default=None, description="mentions as [start, end) in characters; null finds them in the text"
    )
    mentions: Mentions | None = Field(
        default=None,
        description="without spans: find names, or all that Wikipedia would link; null is the server's choice",
    )
    top: int = Field(default=7, ge=0, le=100, description="candidates to list per mention")
    explain: bool = Field(default=True, description="add the attended words and the supporting mentions")
    threshold: float = Field(
        default=0.0, ge=0, le=1, description="below this probability, give a reason instead of an entity"
    )


class LinkRequests(RootModel[list[LinkRequest]]):
    """A list of documents."""

    root: list[LinkRequest] = Field(max_length=MAX_DOCUMENTS, fail_fast=True)


class Entity(BaseModel):
    title: str
    page_id: int
    url: str
    wikidata: str | None = Field(default=None, description="its Wikidata id, such as Q64")


class EntityScore(Entity):
    """A candidate and the parts of its score."""

    probability: float = Field(
        description="how likely it is right; with none_probability, those of all candidates add up to 1"
    )
    score: float
    prior: float = Field(description="p(e|m); 0 if another source found it")
    local: float = Field(description="what the attended context words say")
    coherence: float | None = Field(description="belief after all mentions are weighed together")
    source: str = Field(description="where it came from: prior, name (how it matches), longer name, document, context")


class AttendedWord(BaseModel):
    word: str
    weight: float


class Supporter(BaseModel):
    mention: int = Field(description="position in the list of mentions")
    weight: float = Field(description="how much its entity supports this entity rather than the runner-up")


class LinkedMention(BaseModel):
    """The answer for one span. If no entity is known or probable enough, `entity` is null and `reason` says why."""

    start: int
    end: int
    surface: str
    entity: EntityScore | None
    reason: str | None
    none_probability: float = Field(description="how likely it is that none of the candidates is meant")
    candidates: list[EntityScore]
    attended: list[AttendedWord]
    support: list[Supporter]


class Version(BaseModel):
    """What made an answer: the software, the kind of model, the ids of the trained linker and of the corpus, and how many
    changes to entities it knows, with a checksum of them."""

    deeped_ray: str
    model: str
    linker: str | None
    knowledge_base: str
    changes: str


class LinkResponse(BaseModel):
    mentions: list[LinkedMention]
    version: Version


class Health(BaseModel):
    status: str
    entities: int
    version: Version


class Error(BaseModel):
    detail: str | list[dict[str, Any]]


# -- look-ups


class EntityReply(Entity):
    is_person: bool
    num_links: int = Field(description="links to it")
    num_words: int = Field(description="words on its page")


class Related(Entity):
    similarity: float = Field(description="cosine")


class NeighborsReply(BaseModel):
    entity: EntityReply
    neighbors: list[Related]


class EntityName(BaseModel):
    name: str
    prior: float = Field(description="p(e|m): how often the name means this entity")
    count: float


class NamesReply(BaseModel):
    entity: EntityReply
    names: list[EntityName]


class Sense(Entity):
    prior: float
    count: float


class Resembling(Entity):
    resemblance: float
    match: str = Field(description="how the names match: equals, words, initials, inflection, typo, part")


class MentionReply(BaseModel):
    """What a name can mean. If the name is not known, entities whose names resemble it."""

    mention: str
    rule: str
    candidates: list[Sense]
    resembling: list[Resembling]


class RelatednessRequest(Closed):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"pairs": [["Apple Inc.", "IPhone"], ["Apple", "IPhone"]]}]}
    )

    pairs: list[tuple[Title, Title]] = Field(max_length=1000, fail_fast=True)


class RelatednessReply(BaseModel):
    similarities: list[float] = Field(description="cosines, in the order of the pairs")


class SearchRequest(Closed):
    """Search near entities, near a text, or near a mix of both; or by a name that should be resembled."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "a goalkeeper on the ice", "count": 5}, {"name": "Montreal Canadeins"}]
        },
    )

    titles: list[Title] = Field(default=[], max_length=100, fail_fast=True)
    text: SearchText = ""
    name: Title | None = None
    count: Count = 10


class SearchReply(BaseModel):
    related: list[Related]
    resembling: list[Resembling]
