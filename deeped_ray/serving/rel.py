"""REL's format: `{"text": ..., "spans": [[start, length], ...]}` in, a list of mentions out."""

from collections.abc import Sequence

import orjson
from pydantic import BaseModel, ConfigDict, Field

from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.serving.schemas import MAX_SPANS, Offset, Text, parse
from deeped_ray.serving.work import Predictions, Work, in_layers, in_order

RelMention = tuple[int, int, str, str, float, float, str]
"""Start, length, mention, title with underscores, confidence in the entity, confidence in the mention, tag."""


class RelRequest(BaseModel):
    """A text and its mentions. Without mentions, they are found. Other keys, such as `tagger`, are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Montreal met Toronto on the ice.", "spans": [[0, 8], [13, 7]]}]}
    )

    text: Text
    starts_and_lengths: list[tuple[Offset, Offset]] | None = Field(
        default=None, alias="spans", max_length=MAX_SPANS, fail_fast=True
    )


def rel_work(body: bytes, _: Pause = no_pause) -> Work:
    asked = parse(RelRequest, body)
    spans = [(start, start + length) for start, length in asked.starts_and_lengths or ()]
    return Work(in_layers(asked.text, spans or None), write_rel)


def write_rel(answers: Sequence[Predictions], *, pause: Pause = no_pause) -> bytes:  # noqa: ARG001
    """REL leaves out mentions without an entity. Confidence in the mention and tag are empty: nothing judges mentions."""
    rows: list[RelMention] = [
        (p.start, p.end - p.start, p.surface, p.entity.title.replace(" ", "_"), p.entity.probability, 0.0, "NULL")
        for p in in_order(answers)
        if p.entity
    ]
    return orjson.dumps(rows)
