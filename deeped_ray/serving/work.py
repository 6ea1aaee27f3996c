"""One request's work, whatever its format: the record that goes through the queue.

Each format makes it from a body and names its own writer: `link.py`, `rel.py` and `nif.py`.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deeped_ray.linking.answers import Answers
from deeped_ray.linking.detection import Span
from deeped_ray.serving.schemas import MAX_MENTIONS, MAX_TEXT_CHARACTERS, LinkRequest
from deeped_ray.serving.turns import TooLargeError
from deeped_ray.types import Prediction

CHARACTERS_PER_MENTION = 50
"""What the queue counts as one mention in a text whose mentions are not found yet.

Measured, by mentions found: 51 characters on mini:test, 62 on AIDA, 70 on Wikipedia articles (WNED).
"""
SECONDS_PER_CHARACTER, SECONDS_PER_MENTION = 1e-6, 0.001
"""What finding the mentions of a text and linking them takes at most on one core, replies and reasons included, by and
large: for requests that are too small for a sample (`samples.py`)."""
CHARACTERS_AS_A_MENTION = int(SECONDS_PER_MENTION / SECONDS_PER_CHARACTER)
PER_PIECE = 100
"""Mentions that are written at once: a long reply would hold the interpreter for a third of a second."""
Predictions = Sequence[Prediction]
Writer = Callable[[Sequence[Answers]], Iterator[bytes]]
"""Turns the answers for each text into the body of the reply, in pieces."""


@dataclass(frozen=True, slots=True)
class Work:
    """Texts to link, and the writer of the reply."""

    texts: Sequence[LinkRequest]
    write: Writer
    mention_bytes: Callable[[LinkRequest, Prediction], int]
    """What a mention takes in the reply."""
    fixed_bytes: int = 0
    """What the reply has besides the mentions."""

    def __post_init__(self) -> None:
        check_limit(sum(len(each.text) for each in self.texts), "characters", limit=MAX_TEXT_CHARACTERS)
        spans = [span for each in self.texts for span in each.spans or ()]
        check_limit(len(spans), "mentions", limit=MAX_MENTIONS)
        # mentions that overlap could repeat the text thousands of times
        covered = sum(max(0, end - start) for start, end in spans)
        check_limit(covered, "characters in mentions", limit=MAX_TEXT_CHARACTERS)

    @property
    def size(self) -> int:
        """Mentions, given or expected, and what it takes to read the texts. Each text adds one: an empty one is work too."""
        return sum(1 + len(each.text) // CHARACTERS_AS_A_MENTION + _num_mentions(each) for each in self.texts)


def _num_mentions(text: LinkRequest) -> int:
    return len(text.text) // CHARACTERS_PER_MENTION if text.spans is None else len(text.spans)


def check_limit(number: int, what: str, *, limit: int) -> None:
    if number > limit:
        raise TooLargeError(f"The texts have {number:,} {what}; the limit is {limit:,}. Send them in several requests.")


def in_layers(text: str, spans: Sequence[Span] | None) -> list[LinkRequest]:
    """One text for each layer of spans, as clients of other systems may send spans that overlap."""
    found = [None] if spans is None else layers(spans)
    return [LinkRequest.model_construct(text=text, spans=layer, explain=False, top=1) for layer in found]


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
