"""Texts in requests: long ones are cut, many go together, and the answers get the offsets of the whole text.

A server bounds what one request may ask for, and how large its answer may become, which nobody knows before. So a request
that is refused as too large is sent again as two halves. A text is cut between lines or sentences, never in a mention. Its
halves are linked apart: mentions of one do not help those of the other.
"""

import bisect
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from deeped_ray.client.asking import Asking, Steps, TooLargeError
from deeped_ray.predictions import Predictions
from deeped_ray.types import Candidate, DeepEdError, Document, Prediction, check_spans

MAX_CHARACTERS, MAX_SPANS, MAX_DOCUMENTS = 1_000_000, 10_000, 256
"""Of one request, by the server's usual limits."""
TOGETHER_CHARACTERS = 100_000
"""Texts up to this many share a request: apart they would be linked the same, but slower."""
ALL_CANDIDATES = 100
_CANDIDATE = [each.name for each in fields(Candidate)]


@dataclass(frozen=True)
class Piece:
    """A stretch of a text, with the spans in it that should be linked; None: the server finds them."""

    document: int
    start: int
    text: str
    spans: Sequence[tuple[int, int]] | None
    """In order, counted from the start of the stretch."""

    @property
    def is_empty(self) -> bool:
        return not self.text or (self.spans is not None and not self.spans)

    @property
    def is_small(self) -> bool:
        return len(self.text) <= MAX_CHARACTERS and len(self.spans or ()) <= MAX_SPANS

    def halves(self) -> "list[Piece]":
        """Two pieces; one if it cannot be cut."""
        spans = self.spans or ()
        if len(spans) > 1:  # half of the mentions
            low, high = spans[len(spans) // 2 - 1][1], spans[len(spans) // 2][0]
        else:
            low, high = len(self.text) // 4, len(self.text) * 3 // 4
        cut = self._outside(_gap(self.text, low, high))
        return [self] if not 0 < cut < len(self.text) else [self._part(0, cut), self._part(cut, len(self.text))]

    def _outside(self, cut: int) -> int:
        """The cut, or the larger side of the mention that it would hit."""
        for start, end in self.spans or ():
            if start < cut < end:
                return start if start >= len(self.text) - end else end
        return cut

    def _part(self, start: int, end: int) -> "Piece":
        spans = self.spans
        if spans is not None:
            first, last = bisect.bisect_left(spans, (start, 0)), bisect.bisect_left(spans, (end, 0))
            spans = [(low - start, high - start) for low, high in spans[first:last]]
        return Piece(self.document, self.start + start, self.text[start:end], spans)


def _gap(text: str, low: int, high: int) -> int:
    """Where a text is best cut between two places: at a line's end, else a sentence's, else between words."""
    middle = (low + high) // 2
    for mark in ("\n", ". ", " "):
        before = text.rfind(mark, low, middle)
        place = before if before >= 0 else text.find(mark, middle, high)
        if place >= 0:
            return place + len(mark)
    return middle


@dataclass(frozen=True)
class _Text:
    """A text that was given, and what is known of its pieces."""

    text: str
    spans: Sequence[tuple[int, int]] | None
    found: list[tuple[Piece, list[Prediction]]] = field(default_factory=list)

    @classmethod
    def of(cls, given: str | Document) -> "_Text":
        text = given if isinstance(given, str) else given.text
        spans = None if isinstance(given, str) else [(each.start, each.end) for each in given.mentions]
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DeepEdError("Half of a surrogate pair is not text.") from None
        check_spans(text, spans or ())
        return cls(text, spans)

    def piece(self, number: int) -> Piece:
        return Piece(number, 0, self.text, None if self.spans is None else sorted(self.spans))

    def joined(self) -> Predictions:
        """In the order of the spans, with offsets and places of the whole text."""
        parts = sorted(self.found, key=lambda part: part[0].start)
        places: Sequence[int] = range(sum(len(predictions) for _, predictions in parts))
        if self.spans is not None:
            places = sorted(places, key=self.spans.__getitem__)
        whole: dict[int, Prediction] = {}
        for piece, predictions in parts:
            theirs = places[len(whole) :]
            whole |= {
                place: _moved(each, piece.start, theirs) for place, each in zip(theirs, predictions, strict=False)
            }
        return Predictions([whole[place] for place in range(len(whole))], self.text)


def _moved(answer: Prediction, start: int, places: Sequence[int]) -> Prediction:
    support = tuple((places[place], weight) for place, weight in answer.support)
    return replace(answer, start=answer.start + start, end=answer.end + start, support=support)


def link_all(asking: Asking, texts: Sequence[str | Document], options: Mapping[str, Any]) -> Steps[list[Predictions]]:
    """What `POST /link` answers for each text."""
    documents = [_Text.of(text) for text in texts]
    pieces = (_cut(document.piece(number)) for number, document in enumerate(documents))
    waiting = [*_groups(itertools.chain.from_iterable(pieces))][::-1]
    while waiting:
        group = waiting.pop()
        asked = [{"text": piece.text, "spans": piece.spans, "top": ALL_CANDIDATES, **options} for piece in group]
        try:
            found = yield from asking.ask(functools.partial(_read, group), "POST", "/link", asked)
        except TooLargeError:
            waiting += _smaller(group)[::-1]
            if waiting[-1:] == [group]:
                raise
        else:
            for piece, predictions in found:
                documents[piece.document].found.append((piece, predictions))
    return [document.joined() for document in documents]


def _smaller(group: list[Piece]) -> list[list[Piece]]:
    """A request as two; one if its piece cannot be cut."""
    half = len(group) // 2
    if half:
        return [group[:half], group[half:]]
    return [[piece] for piece in group[0].halves() if not piece.is_empty]


def _read(group: Sequence[Piece], reply: list[dict[str, Any]]) -> list[tuple[Piece, list[Prediction]]]:
    return [(piece, [*map(prediction_of, each["mentions"])]) for piece, each in zip(group, reply, strict=True)]


def _cut(piece: Piece) -> Iterator[Piece]:
    """Pieces of which each fits a request, by what is known before it is sent."""
    halves = [piece] if piece.is_small else piece.halves()
    if len(halves) == 1:
        yield from [] if piece.is_empty else halves
    else:
        yield from itertools.chain.from_iterable(map(_cut, halves))


def _groups(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces that go together."""
    group: list[Piece] = []
    for piece in pieces:
        characters = sum(len(each.text) for each in [*group, piece])
        spans = sum(len(each.spans or ()) for each in [*group, piece])
        if group and (characters > TOGETHER_CHARACTERS or spans > MAX_SPANS or len(group) == MAX_DOCUMENTS):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def prediction_of(told: Mapping[str, Any]) -> Prediction:
    """From JSON. Keys that this version does not know are left out."""
    return Prediction(
        told["start"],
        told["end"],
        told["surface"],
        tuple(Candidate(**{name: each[name] for name in _CANDIDATE}) for each in told["candidates"]),
        tuple((each["word"], each["weight"]) for each in told["attended"]),
        tuple((each["mention"], each["weight"]) for each in told["support"]),
        told["reason"],
        told["none_probability"],
    )
