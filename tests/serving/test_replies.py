"""Replies are bounded in bytes: what is too large is refused before it is linked."""

import json
from functools import partial
from typing import Any

import pytest

from deeped_ray.linking.pace import no_pause
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.link import link_work
from deeped_ray.serving.nif import nif_work
from deeped_ray.serving.rel import rel_work
from deeped_ray.serving.samples import Sampler
from deeped_ray.serving.service import LinkingService, Reader
from deeped_ray.serving.turns import TooLargeError
from tests.test_linear import nif

UNIT = "Montreal met Toronto in the Stanley Cup, Zorblatt saw Stanlye Cup. "
NUM = 150
TEXT = UNIT * NUM
SPANS = [
    (i * len(UNIT) + UNIT.index(name), name) for i in range(NUM) for name in ("Montreal", "Zorblatt", "Stanlye Cup")
]
REL = [(start, len(name)) for start, name in SPANS]
ENDS = [(start, start + len(name)) for start, name in SPANS]
LINK: Reader = partial(link_work, version={"model": "global"})
NIF: Reader = partial(nif_work, confidence=True)
LONG_URI = b"http://example.org/" + b"a" * 1_900


def link_body(**options: Any) -> bytes:
    return json.dumps({"text": TEXT, "spans": ENDS, **options}).encode()


def size_and_expectation(service: LinkingService, read: Reader, body: bytes) -> tuple[int, int]:
    work = read(body, no_pause)
    documents = [service.linker.document(text.text, text.spans) for text in work.texts]
    expected = Sampler(service.linker).cost(work, documents, no_pause).reply_bytes
    (reply,) = service._run([lambda _: work], no_pause)
    assert isinstance(reply, bytes)
    return len(reply), expected


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (LINK, link_body()),
        (LINK, link_body(spans=None)),
        (LINK, link_body(top=0)),
        (LINK, link_body(explain=False, threshold=1)),
        (LINK, b"[" + b",".join([link_body(top=1), link_body(explain=False)]) + b"]"),
        (rel_work, json.dumps({"text": TEXT, "spans": REL}).encode()),
        (NIF, nif(TEXT, ENDS)),
        (NIF, nif(TEXT, [])),
        (NIF, nif(TEXT, ENDS).replace(b"http://e/d", LONG_URI)),
        (NIF, nif(TEXT, [(0, 500)] * 100)),
    ],
)
def test_the_size_of_a_reply_is_known_within_half_before_it_is_made(
    service: LinkingService, read: Reader, body: bytes
) -> None:
    size, expected = size_and_expectation(service, read, body)
    assert size / 1.5 < expected < size * 1.5


@pytest.fixture(scope="module")
def small(service: LinkingService) -> LinkingService:
    """Answers with at most 100,000 bytes."""
    return LinkingService(AppArgs(kb=str(service.lookup._kb.root), max_reply_mb=0.1))


@pytest.mark.parametrize(("read", "body"), [(LINK, link_body()), (NIF, nif(TEXT, [(0, len(TEXT))] * 50))])
def test_a_reply_that_would_be_too_large_is_refused_before_it_is_made(
    small: LinkingService, monkeypatch: pytest.MonkeyPatch, read: Reader, body: bytes
) -> None:
    monkeypatch.setattr(small, "_reply", lambda *_: pytest.fail("it was made"))
    (refusal,) = small._run([partial(read, body)], no_pause)
    assert isinstance(refusal, TooLargeError)
    message = (
        r"^The limit of a reply is 0\.1 MB; this one would have about 0\.\d MB\. Send fewer mentions at once\. .*`top`"
    )
    with pytest.raises(TooLargeError, match=message):
        raise refusal


def test_less_for_each_mention_makes_room(small: LinkingService) -> None:
    (reply,) = small._run([partial(LINK, link_body(top=0, explain=False, threshold=1))], no_pause)
    assert isinstance(reply, bytes)


def test_a_reply_that_surprises_by_its_size_is_not_finished(small: LinkingService) -> None:
    pieces = iter([b"a" * 60_000] * 3)
    with pytest.raises(TooLargeError, match="this one has more"):
        small._replies.join(pieces, no_pause)
    assert len(list(pieces)) == 1
