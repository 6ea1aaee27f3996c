"""One request's work, whatever its format: the record that goes through the queue.

Each format makes it from a body and names its own writer: `link.py`, `rel.py` and `nif.py`.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeped_ray.linking.detection import Span
from deeped_ray.serving.schemas import MAX_MENTIONS, MAX_TEXT_CHARACTERS, LinkRequest
from deeped_ray.types import DeepEdError, Prediction

CHARACTERS_PER_MENTION = 50
"""What the queue counts as one mention in a text whose mentions are not found yet.

Measured, by mentions found: 51 characters on mini:test, 62 on AIDA, 70 on Wikipedia articles (WNED).
"""
Predictions = list[Prediction]


class TooLargeError(DeepEdError):
    """A request that asks for more work than one request may."""


@dataclass(frozen=True, slots=True)
class Work:
    """Texts to link, and the writer that turns their predictions into the body of the reply."""

    texts: Sequence[LinkRequest]
    write: Callable[[list[Predictions]], bytes]

    def __post_init__(self) -> None:
        check_limit(sum(len(each.text) for each in self.texts), "characters", limit=MAX_TEXT_CHARACTERS)
        check_limit(sum(len(each.spans or ()) for each in self.texts), "mentions", limit=MAX_MENTIONS)

    @property
    def size(self) -> int:
        """Mentions, given or expected. Each text adds one: an empty text is work too."""
        expected = (
            len(each.text) // CHARACTERS_PER_MENTION if each.spans is None else len(each.spans) for each in self.texts
        )
        return len(self.texts) + sum(expected)


def check_limit(number: int, what: str, *, limit: int) -> None:
    if number > limit:
        raise TooLargeError(f"The texts have {number:,} {what}; the limit is {limit:,}. Send them in several requests.")


def in_layers(text: str, spans: Sequence[Span] | None) -> list[LinkRequest]:
    """One text for each layer of spans, as clients of other systems may send spans that overlap."""
    found = [None] if spans is None else layers(spans)
    return [LinkRequest.model_construct(text=text, spans=layer, explain=False) for layer in found]


def layers(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans in lists, so that no two spans of a list overlap."""
    found: list[list[Span]] = []
    ends: list[tuple[int, int]] = []  # a heap: where each list ends, and which list it is
    for span in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if ends and ends[0][0] <= span[0]:
            place = ends[0][1]
            heapq.heapreplace(ends, (span[1], place))
            found[place].append(span)
        else:
            heapq.heappush(ends, (span[1], len(found)))
            found.append([span])
    return found


def in_order(answers: Sequence[Predictions]) -> Predictions:
    """The predictions of all layers, in the order of the text."""
    return sorted((answer for layer in answers for answer in layer), key=lambda answer: (answer.start, -answer.end))
