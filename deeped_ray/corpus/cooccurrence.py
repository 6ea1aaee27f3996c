"""#(w, e): the words of an entity's own page and of the windows around links to it (section 3).

Both are kept as CSR arrays `<source>.offsets/.words/.counts.npy`, one row per entity, words by rising id.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.corpus.shuffle import gather
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location
from deeped_ray.types import Link

PAGE_WORDS, LINK_WORDS = "page_words", "link_words"
_WORD = re.compile(r"(\w+)")

Ids = npt.NDArray[np.int64]


class TokenizedText(NamedTuple):
    """All words of a text, as ids of the corpus vocabulary (-1 outside it), with their places."""

    ids: Ids
    starts: Ids
    ends: Ids


def tokenize_to_ids(text: str, vocabulary: dict[str, int]) -> TokenizedText:
    """`text.tokenize` in bulk: splitting at words and adding up lengths is several times faster than one match at a time."""
    pieces = _WORD.split(text)
    borders = np.cumsum(np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)))
    words = pieces[1::2]
    ids = np.fromiter((vocabulary.get(word, -1) for word in words), dtype=np.int64, count=len(words))
    return TokenizedText(ids, borders[:-1:2], borders[1::2])


def link_words(tokens: TokenizedText, links: Sequence[Link], *, window: int) -> tuple[Ids, Ids]:
    """(position of a link, word id) for all vocabulary words in the windows around links.

    A window is the `window // 2` words on each side, counted before stop words are left out; the link's own words are
    not part of it.
    """
    half = window // 2
    num_left = np.searchsorted(tokens.ends, [link.start for link in links], side="right")
    first_right = np.searchsorted(tokens.starts, [link.end for link in links], side="left")
    places = np.concatenate(
        [num_left[:, None] - np.arange(half, 0, -1), first_right[:, None] + np.arange(half)], axis=1
    )
    is_inside = (places >= 0) & (places < len(tokens.ids))
    words = np.where(
        is_inside, tokens.ids[np.clip(places, 0, max(len(tokens.ids) - 1, 0))] if len(tokens.ids) else -1, -1
    )
    position, _ = np.nonzero(words >= 0)
    return position, words[words >= 0]


def count_pairs(entities: Ids, words: Ids) -> pa.Table:
    """Distinct (entity, word) pairs with their number."""
    keys, counts = np.unique((entities << 32) | words, return_counts=True)
    return pa.table({"entity": keys >> 32, "word": keys & 0xFFFFFFFF, "count": counts.astype(np.int64)})


def reduce_counts(files: Sequence[Location], partition: int, first_entity: int, last_entity: int, target: Path) -> None:
    """Task: add up the counts of entities [first, last) and write them as a piece of the CSR arrays, with prefix `target`."""
    table = gather(files, partition)
    keys, inverse = np.unique((table["entity"].to_numpy() << 32) | table["word"].to_numpy(), return_inverse=True)
    counts = np.bincount(inverse, weights=table["count"].to_numpy(), minlength=len(keys)).astype(np.int32)
    lengths = np.bincount((keys >> 32) - first_entity, minlength=last_entity - first_entity)
    np.save(f"{target}.offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    np.save(f"{target}.words.npy", (keys & 0xFFFFFFFF).astype(np.int32))
    np.save(f"{target}.counts.npy", counts)


class WordRow(NamedTuple):
    words: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


class WordCounts:
    """Reads one source of word-entity counts; word ids are rows of the corpus vocabulary."""

    def __init__(self, part: Part, name: str) -> None:
        self.offsets = part.array(f"{name}.offsets")
        self.words = part.array(f"{name}.words")
        self.counts = part.array(f"{name}.counts")

    def __getitem__(self, entity_id: int) -> WordRow:
        cells = slice(int(self.offsets[entity_id]), int(self.offsets[entity_id + 1]))
        return WordRow(self.words[cells], self.counts[cells])
