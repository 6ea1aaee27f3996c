"""REL's contract: `{"text": ..., "spans": [[start, length], ...]}` into a text and spans, predictions into its lists."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from deeped_ray.serving.schemas import MAX_SPANS, Offset, Text
from deeped_ray.types import Prediction

RelMention = tuple[int, int, str, str, float, float, str]
"""Start, length, mention, title with underscores, confidence in the entity, confidence in the mention, tag."""


class RelRequest(BaseModel):
    """A text and the mentions in it; without any they are to be found. Other keys, such as `tagger`, mean nothing here."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Montreal met Toronto on the ice.", "spans": [[0, 8], [13, 7]]}]}
    )

    text: Text
    starts_and_lengths: list[tuple[Offset, Offset]] | None = Field(
        default=None, alias="spans", max_length=MAX_SPANS, fail_fast=True
    )

    @property
    def to_link(self) -> list[tuple[int, int]] | None:
        """By start and end, as the linker takes them; None where mentions are to be found first."""
        return [(start, start + length) for start, length in self.starts_and_lengths or ()] or None


def rel_answer(predictions: Sequence[Prediction]) -> list[RelMention]:
    """As REL lists them: mentions without an entity are left out; no tagger has judged those that are in."""
    return [
        (p.start, p.end - p.start, p.surface, p.best.title.replace(" ", "_"), p.best.probability, 0.0, "NULL")
        for p in predictions
        if p.best
    ]
