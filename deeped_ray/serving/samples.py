"""What a request will take, in work and in bytes, from a sample of its own text and mentions.

Work is measured here and now, in processor time of this thread: it depends on the machine, on the knowledge base and on
the kind of text by a factor of ten and more, so no fixed figure would be true.
"""

import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from deeped_ray.linking.candidates import KnownWords
from deeped_ray.linking.detection import PIECE_CHARACTERS
from deeped_ray.linking.groups import MAX_JOINT_MENTIONS
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.pace import Pause
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.work import SECONDS_PER_CHARACTER, Work
from deeped_ray.types import Document, Mention

SAMPLE = 100
"""Mentions that are linked first: about 40 ms of work."""
BLOCK = 10
"""Mentions of a sample that follow each other: taken one by one, each would bring its own surroundings."""
AROUND = 400
"""Characters before and after such a block that the sample has, for its context."""
SECONDS_PER_TEXT = 1.2e-3
SHORT_TEXT = 100_000
"""Characters that are not worth a sample."""
SECOND_VIEW = 0.6
"""What a mention takes in the second of the windows that see it, by what it takes in the first: its name is remembered."""
PIECES = 3
"""Of a long text that are searched for mentions first."""

Block = tuple[int, list[Mention]]
"""Mentions that follow each other, and the number of their document."""


class Cost(NamedTuple):
    seconds: float
    reply_bytes: int


class Sampler:
    """Takes samples of the requests to one linker."""

    def __init__(self, linker: Linker) -> None:
        self._linker = linker

    def detection_s(self, texts: Sequence[LinkRequest], pause: Pause) -> float:
        """To find the mentions of all texts that have none."""
        asked = [each for each in texts if each.spans is None]
        return len(asked) * SECONDS_PER_TEXT + sum(self._detection_s(each, pause) for each in asked)

    def _detection_s(self, asked: LinkRequest, pause: Pause) -> float:
        text = asked.text
        if len(text) <= SHORT_TEXT:
            return len(text) * SECONDS_PER_CHARACTER
        starts = random.Random(0).sample(range(0, len(text) - PIECE_CHARACTERS, PIECE_CHARACTERS), PIECES)
        pieces = [text[start : start + PIECE_CHARACTERS] for start in starts]
        clock = _Clock()
        for piece in pieces:
            self._linker.detector.spans(piece, pause, mentions=asked.mentions)
        return clock.lap() * len(text) / sum(map(len, pieces))

    def cost(self, work: Work, documents: Sequence[Document], pause: Pause) -> Cost:
        """To link the mentions and to write the reply; the documents have a mention at least."""
        num_mentions = sum(len(document.mentions) for document in documents)
        sample = _sample(documents)
        excerpts = _excerpts(sample, documents, size=-(-num_mentions // len(documents)))
        # the second time, words are remembered
        reading_s, again_s = (self._reading_s(excerpts, pause) for _ in range(2))
        clock = _Clock()
        explain = any(text.explain for text in work.texts)
        linked = [each for found in self._linker.link_batch(excerpts, explain=explain, pause=pause) for each in found]
        linking_s = clock.lap() - again_s
        asked = [work.texts[i] for i, block in sample for _ in block]
        sizes = [
            work.mention_bytes(text, each.at_least(text.threshold)) for text, each in zip(asked, linked, strict=True)
        ]
        writing_s, share = clock.lap(), num_mentions / len(asked)
        num_characters = sum(len(document.text) for document in documents if document.mentions)
        seconds = reading_s * num_characters / sum(len(excerpt.text) for excerpt in excerpts)
        seconds += max(linking_s, 0.0) * share * _times_seen(documents) + writing_s * share
        return Cost(seconds, work.fixed_bytes + int(sum(sizes) * share))

    def _reading_s(self, documents: Sequence[Document], pause: Pause) -> float:
        """The part of linking that grows with the text, not with the mentions."""
        clock = _Clock()
        for document in documents if self._linker.model is not None else ():
            KnownWords(document.text, self._linker.inputs.words, pause)
        return clock.lap()


class _Clock:
    """Processor time of this thread."""

    def __init__(self) -> None:
        self._last = time.thread_time()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, time.thread_time()
        return self._last - before


def _times_seen(documents: Sequence[Document]) -> float:
    """In how many windows a mention is linked, on average: in two if the document has many, else in one."""
    counts = [len(document.mentions) for document in documents]
    again = sum(max(count - MAX_JOINT_MENTIONS, 0) for count in counts)
    return 1 + SECOND_VIEW * again / sum(counts)


def _sample(documents: Sequence[Document]) -> list[Block]:
    """Blocks at random, of SAMPLE mentions or a few more: in a table, every hundredth mention may be of one kind."""
    in_order = [sorted(document.mentions, key=lambda mention: mention.start) for document in documents]
    starts = [(i, start) for i, mentions in enumerate(in_order) for start in range(0, len(mentions), BLOCK)]
    random.Random(0).shuffle(starts)
    blocks, missing = [], SAMPLE
    while missing > 0 and starts:
        i, start = starts.pop()
        blocks.append((i, in_order[i][start : start + BLOCK]))
        missing -= len(blocks[-1][1])
    return blocks


def _excerpts(sample: Sequence[Block], documents: Sequence[Document], *, size: int) -> list[Document]:
    """Texts with the blocks and their surroundings, of about so many mentions: as many as a document has."""
    excerpts, pieces, mentions, end = [], [], [], 0
    for i, block in sample:
        first = max(0, block[0].start - AROUND)
        pieces.append(documents[i].text[first : max(mention.end for mention in block) + AROUND])
        mentions += [Mention(end + mention.start - first, end + mention.end - first) for mention in block]
        end += len(pieces[-1]) + 1
        if len(mentions) >= size:
            excerpts.append(Document("", "\n".join(pieces), tuple(mentions)))
            pieces, mentions, end = [], [], 0
    return [*excerpts, Document("", "\n".join(pieces), tuple(mentions))] if mentions else excerpts
