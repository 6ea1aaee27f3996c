"""Documents that are linked at once: their texts as one, and their mentions window by window in flat arrays.

Mentions of a window are linked jointly. Windows know nothing of each other, so a document gets the same answers alone and
in any group.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.linking.encoding import Ints
from deeped_ray.types import Document, Mention

# Differs from the paper: belief propagation grows with the square of the mentions, so longer documents are linked in
# windows of this many, each mention in the window where it stands farthest from the rim.
MAX_JOINT_MENTIONS = 100
MOST_MENTIONS = 200
"""Of a group: enough that what Python does for a group hardly counts, and some 20 ms of work."""


CHARACTERS = 500
"""Of text that count as a mention: reading them takes less time than linking one."""


class Window(NamedTuple):
    """Mentions that are linked jointly, by their places in the document."""

    mentions: list[int]
    is_answered: list[bool]
    """False where another window has the better view."""


class Texts(NamedTuple):
    """Documents with their texts as one: a line end keeps words of two documents apart."""

    documents: Sequence[Document]
    text: str
    starts: list[int]
    """Where each document begins, and where one more would."""

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "Texts":
        starts = itertools.accumulate((len(document.text) + 1 for document in documents), initial=0)
        return cls(documents, "\n".join([document.text for document in documents]), [*starts])


class Group(NamedTuple):
    """Some windows of some documents, one after the other."""

    texts: Texts
    windows: list[tuple[int, Window]]
    """Each with the number of its document."""
    bounds: Ints
    """Where the mentions of each window begin, and where those of one more would."""
    mentions: list[Mention]
    places: Ints
    """Of mentions in their documents."""
    is_answered: npt.NDArray[np.bool_]
    spans: Ints
    """Start and end of each mention in the text, [N, 2]."""
    surfaces: list[str]
    names: Ints
    """In a window, mentions that are written alike have the same number."""

    @classmethod
    def of(cls, texts: Texts, windows: list[tuple[int, Window]]) -> "Group":
        mentions, surfaces, names, spans = list[Mention](), list[str](), list[int](), list[tuple[int, int]]()
        for number, window in windows:
            text, shift = texts.documents[number].text, texts.starts[number]
            all_mentions, numbers = texts.documents[number].mentions, dict[str, int]()
            for place in window.mentions:
                mention = all_mentions[place]
                surface = text[mention.start : mention.end]
                mentions.append(mention)
                surfaces.append(surface)
                names.append(numbers.setdefault(surface, len(numbers)))
                spans.append((mention.start + shift, mention.end + shift))
        places = itertools.chain.from_iterable(window.mentions for _, window in windows)
        asked = itertools.chain.from_iterable(window.is_answered for _, window in windows)
        bounds = [*itertools.accumulate((len(window.mentions) for _, window in windows), initial=0)]
        return cls(
            *(texts, windows, np.array(bounds, np.int64), mentions, np.array([*places], np.int64)),
            *(np.array([*asked], np.bool_), np.array(spans, np.int64).reshape(-1, 2), surfaces),
            np.array(names, np.int64),
        )


def groups_of(texts: Texts, *, most: int | None = None) -> Iterator[Group]:
    """All windows of the documents, in groups of up to so many mentions."""
    found = list[tuple[int, Window]]()
    total, most = 0, most or MOST_MENTIONS
    for number, document in enumerate(texts.documents):
        for window in windows_of(document.mentions) if document.mentions else ():
            if found and total + len(window.mentions) > most:
                yield Group.of(texts, found)
                found, total = [], 0
            found.append((number, window))
            total += len(window.mentions)
    if found:
        yield Group.of(texts, found)


def lots_of(documents: Sequence[Document], *, most: int) -> list[list[Document]]:
    """The documents in their order, in lots of up to so many mentions, or as much text; a lot has one document at least."""
    lots: list[list[Document]] = []
    total = most
    for document in documents:
        size = max(len(document.mentions), len(document.text) // CHARACTERS)
        if total + size > most or not lots:
            lots.append([])
            total = 0
        lots[-1].append(document)
        total += size
    return lots


def windows_of(mentions: Sequence[Mention], *, size: int | None = None) -> list[Window]:
    """Windows over the mentions in text order, each half over the one before; every mention is answered in one."""
    size = size or MAX_JOINT_MENTIONS
    order = sorted(range(len(mentions)), key=lambda i: mentions[i].start)
    if len(order) <= size:
        return [Window(order, [True] * len(order))]
    step = max(size // 2, 1)
    starts = [*range(0, len(order) - size, step), len(order) - size]
    # the border between two windows lies in the middle of what they share
    borders = [0, *((start + size + after) // 2 for start, after in itertools.pairwise(starts)), len(order)]
    return [
        Window(order[start : start + size], [low <= place < high for place in range(start, start + size)])
        for start, low, high in zip(starts, borders, borders[1:], strict=False)
    ]
