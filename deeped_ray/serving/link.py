"""The format of `POST /link`: one document or a list of them in JSON, answers with their reasons out."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from deeped_ray.serving.schemas import LinkRequest, LinkRequests, parse
from deeped_ray.serving.work import Predictions, Work
from deeped_ray.types import Prediction


def link_work(body: bytes, *, version: Mapping[str, Any]) -> Work:
    """`version` is part of every reply."""
    is_list = body.lstrip()[:1] == b"["
    asked = parse(LinkRequests, body).root if is_list else [parse(LinkRequest, body)]
    return Work(asked, partial(write_link, asked, is_list=is_list, version=version))


def write_link(
    asked: Sequence[LinkRequest], answers: Sequence[Predictions], *, is_list: bool, version: Mapping[str, Any]
) -> bytes:
    replies = [
        {"mentions": [_mention(answer, each) for answer in predictions], "version": version}
        for each, predictions in zip(asked, answers, strict=True)
    ]
    return orjson.dumps(replies if is_list else replies[0])


def _mention(answer: Prediction, asked: LinkRequest) -> dict[str, Any]:
    return {
        "start": answer.start,
        "end": answer.end,
        "surface": answer.surface,
        "entity": answer.entity,
        "reason": answer.reason,
        "candidates": answer.candidates[: asked.top],
        "attended": [{"word": word, "weight": weight} for word, weight in answer.attended] if asked.explain else [],
        "support": [{"mention": place, "weight": w} for place, w in answer.support] if asked.explain else [],
    }
