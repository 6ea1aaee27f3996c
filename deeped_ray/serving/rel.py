"""REL's format: `{"text": ..., "spans": [[start, length], ...]}` in, a list of mentions out."""

from collections.abc import Iterator, Sequence

import orjson
from pydantic import BaseModel, ConfigDict, Field

from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.serving.schemas import MAX_SPANS, LinkRequest, Offset, Text, parse
from deeped_ray.serving.work import PER_PIECE, Predictions, Work, in_layers, in_order
from deeped_ray.types import Candidate, Prediction

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
    return Work(in_layers(asked.text, spans or None), write_rel, rel_bytes)


def write_rel(answers: Sequence[Predictions]) -> Iterator[bytes]:
    """REL leaves out mentions without an entity."""
    rows = [_row(each, each.entity) for each in in_order(answers) if each.entity]
    yield b"["
    for start in range(0, len(rows), PER_PIECE):
        yield b"," if start else b""
        yield orjson.dumps(rows[start : start + PER_PIECE])[1:-1]
    yield b"]"


def rel_bytes(_: LinkRequest, answer: Prediction) -> int:
    return len(orjson.dumps(_row(answer, answer.entity))) + 1 if answer.entity else 0


def _row(answer: Prediction, entity: Candidate) -> RelMention:
    """Confidence in the mention and tag are empty: nothing judges mentions."""
    title = entity.title.replace(" ", "_")
    return answer.start, answer.end - answer.start, answer.surface, title, entity.probability, 0.0, "NULL"
