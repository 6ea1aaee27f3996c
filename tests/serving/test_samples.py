"""What a request is expected to take, before it is done, beside what it takes."""

import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.link import link_work
from deeped_ray.serving.nif import nif_work
from deeped_ray.serving.rel import rel_work
from deeped_ray.serving.service import LinkingService, Reader
from deeped_ray.serving.turns import Slices, TooLargeError, Turns
from tests.test_linear import nif

MANY = 2_600
"""Mentions: enough for a sample."""
CHARACTERS = 300_000
TRIES = 4
"""One of them has to be right: on a busy machine, about one expectation in fifteen is farther off."""
LINK: Reader = partial(link_work, version={"model": "global"})
Body = Callable[[LinkingService], bytes]


def body(text: str, **options: Any) -> bytes:
    return json.dumps({"text": text, "explain": False, "top": 1, **options}, ensure_ascii=False).encode()


def repeated(unit: str) -> str:
    return unit * (CHARACTERS // len(unit))


def listed(names: list[str], **options: Any) -> bytes:
    spans, start = [], 0
    for name in names:
        spans.append([start, start + len(name)])
        start += len(name) + 2
    return body(", ".join(names), spans=spans, **options)


def unknown(_: LinkingService) -> bytes:
    rng = random.Random(0)
    return listed([" ".join("".join(rng.choices("adeilmnorst", k=7)).title() for _ in "ab") for _ in range(MANY)])


def titles(service: LinkingService) -> bytes:
    names = service.lookup.catalogue.titles(np.arange(len(service.lookup.catalogue)))
    return listed([names[i % len(names)] for i in range(MANY)], explain=True, top=2)


BODIES: dict[str, tuple[Reader, Body]] = {
    "known names": (LINK, lambda _: body("Montreal met Toronto in the Stanley Cup. " * (MANY // 3))),
    "unknown names": (LINK, unknown),
    "titles": (LINK, titles),
    "lower case": (LINK, lambda _: body(repeated("the keeper stopped a puck on ice and skated away "))),
    "initials": (LINK, lambda _: body(repeated("A.B.C."))),
    "Thai": (LINK, lambda _: body(repeated("ประเทศไทยมีกรุงเทพมหานคร"))),
    "many texts": (LINK, lambda _: b"[" + b",".join([body("Montreal met Toronto. " * 8)] * 200) + b"]"),
    "REL": (rel_work, lambda _: json.dumps({"text": "Montreal " * MANY, "spans": [[9 * i, 8] for i in range(MANY)]}).encode()),
    "NIF": (partial(nif_work, confidence=True), lambda _: nif("Montreal " * MANY, [(9 * i, 9 * i + 8) for i in range(MANY)])),
}  # fmt: skip


def work_and_expectation(service: LinkingService, read: Reader, request: bytes) -> tuple[float, float]:
    expected = 0.0

    def pause(expected_s: float = 0.0) -> None:
        nonlocal expected
        expected += expected_s

    began = time.thread_time()
    (reply,) = service._run([partial(read, request)], pause)
    assert isinstance(reply, bytes)
    return time.thread_time() - began, expected


@pytest.mark.parametrize("kind", BODIES)
def test_work_is_known_within_half_before_it_is_done(service: LinkingService, kind: str) -> None:
    read, make = BODIES[kind]
    request, found = make(service), []
    for _ in range(TRIES):
        taken, expected = work_and_expectation(service, read, request)
        found.append(f"{taken:.2f} s of {expected:.2f} s")
        if 0.5 * expected <= taken <= 1.5 * expected:
            return
    pytest.fail(f"taken of expected: {', '.join(found)}")


def test_a_request_that_would_take_too_much_is_refused_before_it_is_done(mini_kb: Any) -> None:
    service = LinkingService(AppArgs(kb=str(mini_kb.root), max_work_s=0.5))
    turns = Turns()
    with turns.turn("long"):
        pause = Slices(turns, deadline=time.monotonic() + 60, is_gone=lambda: False, budget_s=0.5)
        began = time.thread_time()
        (reply,) = service._run([partial(LINK, unknown(service))], pause)
    assert isinstance(reply, TooLargeError)
    assert "s of work; the limit is 0.5 s" in str(reply)
    assert time.thread_time() - began < 0.5


def test_work_that_takes_far_more_than_expected_is_ended() -> None:
    turns = Turns()
    with turns.turn("long"):
        pause = Slices(turns, deadline=time.monotonic() + 60, is_gone=lambda: False, budget_s=0.1)
        with pytest.raises(TooLargeError, match=r"took 0.[12] s of work, and has not ended; the limit is 0.1 s"):
            while True:
                pause()
