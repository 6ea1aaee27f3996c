"""The format of `POST /link`: one document or a list of them in JSON, answers with their reasons out."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.views import answer_of
from deeped_ray.serving.schemas import LinkRequest, LinkRequests, parse
from deeped_ray.serving.work import Predictions, Work

_PER_PIECE = 100


def link_work(body: bytes, _: Pause = no_pause, *, version: Mapping[str, Any]) -> Work:
    """`version` is part of every reply."""
    is_list = body.lstrip()[:1] == b"["
    asked = parse(LinkRequests, body).root if is_list else [parse(LinkRequest, body)]
    return Work(asked, partial(write_link, asked, is_list=is_list, version=version))


def write_link(
    asked: Sequence[LinkRequest],
    answers: Sequence[Predictions],
    *,
    is_list: bool,
    version: Mapping[str, Any],
    pause: Pause = no_pause,
) -> bytes:
    replies = [_reply(each, found, version, pause) for each, found in zip(asked, answers, strict=True)]
    return b"[" + b",".join(replies) + b"]" if is_list else replies[0]


def _reply(asked: LinkRequest, answers: Predictions, version: Mapping[str, Any], pause: Pause) -> bytes:
    """Written in pieces: a long reply would hold the interpreter for a third of a second."""
    pieces = []
    for start in range(0, len(answers), _PER_PIECE):
        some = answers[start : start + _PER_PIECE]
        pieces.append(orjson.dumps([answer_of(each, top=asked.top, explain=asked.explain) for each in some])[1:-1])
        pause()
    return b'{"mentions":[' + b",".join(pieces) + b'],"version":' + orjson.dumps(version) + b"}"
