"""The client, against servers that misbehave in every way. Against a real one: serving/test_client.py."""

import asyncio
import json
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from deeped_ray import AsyncClient, Client, Document, Mention, __version__
from deeped_ray.client import pieces
from deeped_ray.client.errors import (
    RefusedError,
    ServerAwayError,
    ServerSlowError,
    ServerVersionError,
    TokenError,
)
from deeped_ray.types import DeepEdError, UnknownEntityError

OURS = {"Deeped-Version": f"deeped_ray={__version__} model=global"}
Reply = tuple[int, dict[str, str], Any]
TEXT = "Ada met Charles in London.\nShe wrote to Mary.  Mary never answered. Ada went on."
CANDIDATE = {"page_id": 1, "url": "u", "prior": 0.5, "local": 0.1, "coherence": None, "score": 1.0, "wikidata": None}


class Server(ThreadingHTTPServer):
    """Answers as a test says, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.replies: list[Reply] = []
        """In this order; then what `answer` says."""
        self.answer: Callable[[Any], Reply] = link
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        server.asked.append(content)
        server.headers.append({name.lower(): value for name, value in self.headers.items()})
        status, headers, reply = server.replies.pop(0) if server.replies else server.answer(content)
        if status == 0:  # the connection ends
            self.connection.shutdown(2)
            return
        body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


def link(documents: list[dict[str, Any]], *, most: int = 10**9) -> Reply:
    """Capitalised words are mentions; each supports the next one. More than `most` characters are too many."""
    if sum(len(each["text"]) for each in documents) > most:
        return 413, OURS, {"detail": "too many characters"}
    return 200, OURS, [{"mentions": [*mentions(each)], "version": {}} for each in documents]


def mentions(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    text, spans = document["text"], document["spans"]
    spans = [found.span() for found in re.finditer("[A-Z][a-z]+", text)] if spans is None else spans
    for place, (start, end) in enumerate(spans):
        title = text[start:end]
        yield {
            **{"start": start, "end": end, "surface": title, "reason": None, "none_probability": 0.1},
            "candidates": [{**CANDIDATE, "title": title, "probability": 0.9, "source": "prior", "colour": "new key"}],
            "attended": [{"word": "met", "weight": 0.5}],
            "support": [{"mention": place - 1, "weight": 1.0}] if place else [],
        }


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a client waited: here it does not."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, token="secret\n") as client:
        yield client


# -- what is asked and answered


def test_a_prediction_has_what_the_server_said(server: Server, client: Client) -> None:
    first, second, *_ = found = client.link(TEXT, threshold=0.5, mentions="all")
    assert (first.start, first.end, first.surface, first.probability) == (0, 3, "Ada", 0.9)
    assert second.entity
    assert (second.entity.title, second.attended, second.support) == ("Charles", (("met", 0.5),), ((0, 1.0),))
    assert found.text == TEXT
    expected = {"text": TEXT, "spans": None, "top": 100, "threshold": 0.5, "explain": True, "mentions": "all"}
    assert server.asked == [[expected]]
    assert server.headers[0]["authorization"] == "Bearer secret"


def test_answers_come_in_the_order_of_the_spans(client: Client) -> None:
    charles, ada = client.link(TEXT, [(8, 15), (0, 3)])
    assert (charles.surface, ada.surface) == ("Charles", "Ada")
    assert charles.support == ((1, 1.0),), "Ada's place among the given spans"


def test_an_empty_text_and_no_spans_are_answered_without_asking(server: Server, client: Client) -> None:
    assert client.link_all(["", Document("d", TEXT, ())]) == [[], []]
    assert server.asked == []


@pytest.mark.parametrize("spans", [[(0, 0)], [(0, 3), (2, 5)], [(0, 1000)]])
def test_wrong_spans_are_refused_before_they_are_sent(server: Server, client: Client, spans: Any) -> None:
    with pytest.raises(DeepEdError, match=r"is empty|overlap|does not lie within"):
        client.link(TEXT, spans)
    assert server.asked == []


def test_half_a_surrogate_pair_is_refused(client: Client) -> None:
    with pytest.raises(DeepEdError, match="Half of a surrogate pair"):
        client.link("\ud800")


def test_the_async_client_asks_many_at_once(server: Server) -> None:
    everyone = threading.Barrier(5, timeout=60)

    def answer(asked: Any) -> Reply:
        everyone.wait()
        return link(asked)

    async def ask() -> list[Any]:
        async with AsyncClient(server.url) as client:
            return await asyncio.gather(*(client.link(TEXT) for _ in range(5)))

    server.answer = answer
    assert [len(found) for found in asyncio.run(ask())] == [7] * 5


def test_a_client_can_be_pickled_and_says_no_secret(client: Client) -> None:
    client.link(TEXT)
    with pickle.loads(pickle.dumps(client)) as again:
        assert again.link(TEXT) == client.link(TEXT)
    assert "secret" not in repr(client)


# -- texts beyond the limits


@pytest.mark.parametrize("most", [len(TEXT) - 1, 40, 20])
def test_a_text_that_is_too_large_is_cut_and_offsets_are_kept(server: Server, client: Client, most: int) -> None:
    whole = client.link(TEXT)
    server.answer = lambda asked: link(asked, most=most)
    cut = client.link(TEXT)
    assert [(each.start, each.end, each.surface) for each in cut] == [(e.start, e.end, e.surface) for e in whole]
    assert all(TEXT[each.start : each.end] == each.surface for each in cut)
    assert all(place == number - 1 for number, each in enumerate(cut) for place, _ in each.support)


@pytest.mark.parametrize("most", [40, 20, 8])
def test_given_spans_are_cut_too_and_keep_their_order(server: Server, client: Client, most: int) -> None:
    spans = [(45, 46), (0, 3), (40, 44), (19, 25), (8, 15), (70, 73)]
    server.answer = lambda asked: link(asked, most=most)
    assert [(each.start, each.end) for each in client.link(TEXT, spans)] == spans


def test_texts_are_cut_at_lines_if_they_can() -> None:
    first, second = pieces.Piece(0, 0, TEXT, None).halves()
    assert (first.text, second.start) == ("Ada met Charles in London.\n", 27)


def test_many_texts_share_requests_that_are_split_if_refused(server: Server, client: Client) -> None:
    server.answer = lambda asked: link(asked, most=100 * len("Ada won."))
    found = client.link_all(["Ada won."] * 300)
    assert [len(each) for each in found] == [1] * 300
    assert [len(asked) for asked in server.asked] == [256, 128, 64, 64, 128, 64, 64, 44]


def test_a_text_over_the_usual_limit_is_not_even_tried(server: Server, client: Client) -> None:
    text = "Ada won.\n" * 120_000
    found = client.link(text, [(len(text) - 9, len(text) - 6)])
    assert found[0].surface == "Ada"
    assert sum(len(each["text"]) for asked in server.asked for each in asked) <= pieces.MAX_CHARACTERS


def test_what_cannot_be_cut_is_refused_with_the_reason(server: Server, client: Client) -> None:
    server.answer = lambda asked: link(asked, most=0)
    with pytest.raises(RefusedError, match=r"too large: too many characters"):
        client.link("Ada")


# -- a server that is busy, away, slow, another


def test_a_busy_server_is_asked_again_when_it_says(server: Server, client: Client, waits: list[float]) -> None:
    busy: Reply = (503, {**OURS, "Retry-After": "7"}, {"detail": "Too many requests are waiting."})
    server.replies = [busy, (502, {}, b"<html>"), busy]
    assert len(client.link(TEXT)) == 7
    assert [7 <= waits[0] <= 7 * 1.2, 1 <= waits[1] <= 1.2, 7 <= waits[2] <= 7 * 1.2] == [True] * 3


def test_a_server_that_stays_busy_is_given_up(server: Server, waits: list[float]) -> None:
    server.answer = lambda _: (503, {**OURS, "Retry-After": "1"}, {"detail": "Too many requests are waiting."})
    with Client(server.url, patience_s=0.5) as client, pytest.raises(ServerAwayError, match="Too many requests"):
        client.link(TEXT)
    assert waits == []


def test_a_server_that_restarts_is_asked_again(server: Server, client: Client, waits: list[float]) -> None:
    client.link(TEXT)
    server.replies = [(0, {}, b""), (0, {}, b"")]
    assert len(client.link(TEXT)) == 7
    assert len(waits) == 2


def test_a_server_that_never_answered_is_not_waited_for(server: Server, waits: list[float]) -> None:
    server.replies = [(0, {}, b"")]
    with Client(server.url) as client, pytest.raises(ServerAwayError, match="cannot be reached"):
        client.link(TEXT)
    assert waits == []


def test_a_slow_server_has_its_own_error(server: Server) -> None:
    hold = threading.Event()
    server.answer = lambda asked: (hold.wait(), link(asked))[1]
    with Client(server.url, timeout_s=0.1) as client, pytest.raises(ServerSlowError, match=r"within 0\.1 s"):
        client.link(TEXT)
    hold.set()


def test_a_wrong_token_has_its_own_error(server: Server, client: Client) -> None:
    server.replies = [(401, OURS, {"detail": "Send the API token as Authorization: Bearer TOKEN."})]
    with pytest.raises(TokenError, match="does not accept the token"):
        client.link(TEXT)


@pytest.mark.parametrize("reply", [(200, {}, []), (200, {}, b"<html>"), (301, {}, b""), (404, {}, b"nothing here")])
def test_another_kind_of_server_is_told(server: Server, client: Client, reply: Reply) -> None:
    server.replies = [reply]
    with pytest.raises(ServerVersionError, match=f"status {reply[0]}, but not as a deeped-ray server"):
        client.link(TEXT)


NEWER = {"Deeped-Version": "deeped_ray=9.8.7 model=global"}


@pytest.mark.parametrize(
    "reply",
    [
        (200, NEWER, b"not JSON"),
        (200, NEWER, {"answers": []}),
        (200, NEWER, []),
        (200, NEWER, [{"mentions": [{"start": 0}]}]),
        (422, NEWER, {"detail": [{"where": [0, "top"], "problem": "unknown option"}]}),
        (404, NEWER, {"detail": "There is no such route. /docs lists all routes."}),
    ],
)
def test_a_version_that_is_not_understood_is_named(server: Server, client: Client, reply: Reply) -> None:
    server.replies = [reply]
    with pytest.raises(ServerVersionError, match=rf"runs deeped-ray 9\.8\.7, this is {__version__}"):
        client.link(TEXT)


def test_another_version_that_is_understood_is_no_error(server: Server, client: Client) -> None:
    server.answer = lambda asked: (200, NEWER, link(asked)[2])
    assert len(client.link(TEXT)) == 7


def test_a_refusal_says_where_and_why(server: Server, client: Client) -> None:
    server.replies = [(422, OURS, {"detail": [{"where": [0, "threshold"], "problem": "at most 1"}]})]
    with pytest.raises(RefusedError, match=r"0\.threshold: at most 1"):
        client.link(TEXT, threshold=2)


def test_an_unknown_entity_is_the_error_of_a_knowledge_base(server: Server, client: Client) -> None:
    server.replies = [(404, OURS, {"detail": "No entity 'Adaa'. Perhaps 'Ada'?"})]
    with pytest.raises(UnknownEntityError, match="Perhaps 'Ada'"):
        client.entity("Adaa")


@pytest.mark.parametrize("url", ["linker.example.com", "ftp://linker.example.com", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(DeepEdError, match="is not the address of a server"):
        Client(url)


def test_documents_are_linked_at_their_own_mentions(client: Client) -> None:
    (found,) = client.link_all([Document("d", TEXT, (Mention(19, 25),))])
    assert [each.surface for each in found] == ["London"]
