"""The format of `POST /link`: one document or a list of them in JSON, answers with their reasons out."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from deeped_ray.linking.answer_json import json_pieces
from deeped_ray.linking.answers import Answers
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.views import answer_of
from deeped_ray.serving.schemas import LinkRequest, LinkRequests, parse
from deeped_ray.serving.work import PER_PIECE, Work
from deeped_ray.types import Prediction


def link_work(body: bytes, _: Pause = no_pause, *, version: Mapping[str, Any]) -> Work:
    """`version` is part of every reply."""
    is_list = body.lstrip()[:1] == b"["
    asked = parse(LinkRequests, body).root if is_list else [parse(LinkRequest, body)]
    return Work(
        asked,
        partial(write_link, asked, is_list=is_list, version=version),
        mention_bytes,
        fixed_bytes=len(asked) * len(orjson.dumps(version)),
    )


def write_link(
    asked: Sequence[LinkRequest], answers: Sequence[Answers], *, is_list: bool, version: Mapping[str, Any]
) -> Iterator[bytes]:
    yield b"[" if is_list else b""
    for number, (each, found) in enumerate(zip(asked, answers, strict=True)):
        yield b',{"mentions":[' if number else b'{"mentions":['
        yield from json_pieces(found, top=each.top, explain=each.explain, per_piece=PER_PIECE)
        yield b'],"version":' + orjson.dumps(version) + b"}"
    yield b"]" if is_list else b""


def mention_bytes(asked: LinkRequest, answer: Prediction) -> int:
    return len(orjson.dumps(answer_of(answer, top=asked.top, explain=asked.explain))) + 1
