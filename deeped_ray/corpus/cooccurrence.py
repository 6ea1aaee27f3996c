"""#(w, e): the words of an entity's own page and of the windows around links to it (section 3).

Both are kept as CSR arrays `<source>.offsets/.words/.counts.npy`, one row per entity, words by rising id.
"""

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.artifacts import Part
from deeped_ray.text import Token, content_words, is_content_word
from deeped_ray.types import Link, Page

PAGE_WORDS, LINK_WORDS = "page_words", "link_words"


def page_words(page: Page) -> list[str]:
    """Content words of the canonical page, title words included."""
    return content_words(page.title) + content_words(page.text)


def link_words(tokens: Sequence[Token], link: Link, *, window: int) -> list[str]:
    """Content words among the `window` words around a link, half on each side, the link's own words left out."""
    first_right = bisect.bisect_left(tokens, link.end, key=lambda token: token.start)
    last_left = bisect.bisect_right(tokens, link.start, key=lambda token: token.end)
    half = window // 2
    around = [*tokens[max(0, last_left - half) : last_left], *tokens[first_right : first_right + half]]
    return [token.word for token in around if is_content_word(token.word)]


class WordRow(NamedTuple):
    words: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


def write_counts(folder: Path, name: str, counts: Mapping[int, Counter[int]], *, num_entities: int) -> None:
    offsets = np.zeros(num_entities + 1, dtype=np.int64)
    for entity_id, row in counts.items():
        offsets[entity_id + 1] = len(row)
    np.cumsum(offsets, out=offsets)
    words = np.empty(offsets[-1], dtype=np.int32)
    numbers = np.empty(offsets[-1], dtype=np.int32)
    for entity_id, row in counts.items():
        cells = slice(offsets[entity_id], offsets[entity_id + 1])
        words[cells], numbers[cells] = zip(*sorted(row.items()), strict=True) if row else ((), ())
    np.save(folder / f"{name}.offsets.npy", offsets)
    np.save(folder / f"{name}.words.npy", words)
    np.save(folder / f"{name}.counts.npy", numbers)


class WordCounts:
    """Reads one source of word-entity counts; word ids are rows of the corpus vocabulary."""

    def __init__(self, part: Part, name: str) -> None:
        self.offsets = part.array(f"{name}.offsets")
        self.words = part.array(f"{name}.words")
        self.counts = part.array(f"{name}.counts")

    def __getitem__(self, entity_id: int) -> WordRow:
        cells = slice(int(self.offsets[entity_id]), int(self.offsets[entity_id + 1]))
        return WordRow(self.words[cells], self.counts[cells])
