"""What goes over HTTP."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from deeped_ray.types import Prediction

Offset = Annotated[int, Field(ge=0)]
MAX_TEXT_CHARACTERS = 1_000_000
MAX_SPANS = 10_000

_EXAMPLE: JsonDict = {"text": "Scotland beat Australia at Murrayfield.", "spans": [[0, 8], [14, 23]]}


class LinkRequest(BaseModel):
    """A text and the spans of the mentions in it, as character offsets, end exclusive."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": _EXAMPLE})

    text: str = Field(max_length=MAX_TEXT_CHARACTERS)
    spans: list[tuple[Offset, Offset]] = Field(max_length=MAX_SPANS)

    @field_validator("text")
    @classmethod
    def _is_text(cls, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no text") from None
        return text

    top: int = Field(default=7, ge=1, le=100, description="candidates to list per mention")


class EntityScore(BaseModel):
    """A candidate and the parts of its score."""

    title: str
    page_id: int
    probability: float
    score: float
    prior: float = Field(description="p(e|m)")
    local: float = Field(description="what the attended context words say")
    coherence: float | None = Field(description="belief after all mentions have been weighed together")


class AttendedWord(BaseModel):
    word: str
    weight: float


class LinkedMention(BaseModel):
    """The answer for one span; `entity` is null, with a reason, where none is known."""

    start: int
    end: int
    surface: str
    entity: EntityScore | None
    candidates: list[EntityScore]
    attended: list[AttendedWord]
    reason: str | None

    @classmethod
    def of(cls, prediction: Prediction, *, top: int) -> "LinkedMention":
        scores = [EntityScore.model_validate(candidate, from_attributes=True) for candidate in prediction.candidates]
        return cls(
            start=prediction.start,
            end=prediction.end,
            surface=prediction.surface,
            entity=scores[0] if scores else None,
            candidates=scores[:top],
            attended=[AttendedWord(word=word, weight=weight) for word, weight in prediction.attended],
            reason=prediction.reason,
        )


class LinkResponse(BaseModel):
    mentions: list[LinkedMention]


class Health(BaseModel):
    status: str
    model: str
    entities: int
