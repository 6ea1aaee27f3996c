"""What goes over HTTP, with examples for the interactive documentation."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel
from pydantic.config import JsonDict

MAX_BODY_BYTES = 8_000_000
MAX_TEXT_CHARACTERS = 1_000_000
MAX_SPANS = MAX_MENTIONS = 10_000
MAX_DOCUMENTS = 256
MAX_NAME_CHARACTERS = 500

_TEXT = "Scotland beat Australia at Murrayfield."
_WITH_SPANS: JsonDict = {"text": _TEXT, "spans": [[0, 8], [14, 23]]}
_RAW: JsonDict = {"text": _TEXT, "threshold": 0.5}


def _is_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no text") from None
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS), AfterValidator(_is_text)]
Title = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS), AfterValidator(_is_text)]
Offset = Annotated[int, Field(ge=0, le=MAX_TEXT_CHARACTERS)]
Count = Annotated[int, Field(ge=1, le=100)]


class Closed(BaseModel):
    """A request; what it does not know it refuses, since a misspelt option would be ignored."""

    model_config = ConfigDict(extra="forbid")


class LinkRequest(Closed):
    """A text, with or without the spans of its mentions."""

    model_config = ConfigDict(json_schema_extra={"examples": [_WITH_SPANS, _RAW]})

    text: Text
    # without fail_fast a body of mistakes would make an error of each
    spans: Annotated[list[tuple[Offset, Offset]], Field(max_length=MAX_SPANS, fail_fast=True)] | None = Field(
        default=None, description="mentions as [start, end) in characters; null: find them in the text"
    )
    top: int = Field(default=7, ge=0, le=100, description="candidates to list per mention")
    explain: bool = Field(default=True, description="tell attended words, and which mentions support which")
    threshold: float = Field(default=0.0, ge=0, le=1, description="answer nothing below this probability")


class LinkRequests(RootModel[list[LinkRequest]]):
    """A list of documents."""

    root: list[LinkRequest] = Field(max_length=MAX_DOCUMENTS, fail_fast=True)


class EntityScore(BaseModel):
    """A candidate and the parts of its score."""

    title: str
    page_id: int
    url: str
    probability: float
    score: float
    prior: float = Field(description="p(e|m); 0 if found since its name resembles the mention")
    local: float = Field(description="what the attended context words say")
    coherence: float | None = Field(description="belief after all mentions have been weighed together")


class AttendedWord(BaseModel):
    word: str
    weight: float


class Supporter(BaseModel):
    mention: int = Field(description="place in the list of mentions")
    weight: float = Field(description="how far its answer speaks for this one rather than for the runner-up")


class LinkedMention(BaseModel):
    """The answer for one span; `entity` is null, with a reason, where none is known or probable enough."""

    start: int
    end: int
    surface: str
    entity: EntityScore | None
    reason: str | None
    candidates: list[EntityScore]
    attended: list[AttendedWord]
    support: list[Supporter]


class Version(BaseModel):
    """What made an answer: software, kind of model, and the ids of the trained linker and of the corpus."""

    deeped_ray: str
    model: str
    linker: str | None
    knowledge_base: str


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


class EntityReply(BaseModel):
    title: str
    page_id: int
    url: str
    is_person: bool
    num_links: int = Field(description="links that lead here")
    num_words: int = Field(description="words of its page")


class Related(BaseModel):
    title: str
    page_id: int
    url: str
    similarity: float = Field(description="cosine")


class NeighborsReply(BaseModel):
    entity: EntityReply
    neighbors: list[Related]


class Sense(BaseModel):
    title: str
    page_id: int
    url: str
    prior: float
    count: float


class Resembling(BaseModel):
    title: str
    page_id: int
    url: str
    resemblance: float


class MentionReply(BaseModel):
    """What a name can mean, and, if it is not known, what resembles it."""

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
    """What to be near to: entities, a text, or the mix of both; or a name to resemble."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "a goalkeeper on the ice", "count": 5}, {"name": "Montreal Canadeins"}]
        },
    )

    titles: list[Title] = Field(default=[], max_length=100, fail_fast=True)
    text: Text = ""
    name: Title | None = None
    count: Count = 10


class SearchReply(BaseModel):
    related: list[Related]
    resembling: list[Resembling]
