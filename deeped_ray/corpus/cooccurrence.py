"""#(w, e): the words of an entity's own page and of the windows around links to it (section 3); and who links to whom.

page_words.*, link_words.*    CSR: row of an entity -> word ids, rising, and their counts
links.*                       CSR: row of an entity -> entities its page links to, rising (`.words`), and their counts
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from deeped_ray.corpus.pages import Ids, Links, Lot
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.csr import Csr, join_csr, write_csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrays import read_array
from deeped_ray.text import word_spans

PAGE_WORDS, LINK_WORDS, GRAPH = "page_words", "link_words", "links"
TABLES = (PAGE_WORDS, LINK_WORDS, GRAPH)
TOTALS = {"num_links": GRAPH, "num_words": PAGE_WORDS}
"""What the catalogue has of two of them."""
_COLUMNS = ("words", "counts")
Pairs = tuple[Ids, Ids]


class Tokens(NamedTuple):
    """All words of a lot's texts, with their places."""

    ids: Ids
    """In the vocabulary of the corpus; -1 outside it."""
    starts: Ids
    ends: Ids
    borders: Ids
    """Words of page i are [borders[i], borders[i + 1])."""


def tokens_of(lot: Lot, vocabulary: Vocabulary) -> Tokens:
    spans = word_spans(lot.text)
    borders = np.searchsorted(spans.starts, lot.borders)
    return Tokens(vocabulary.find(spans.hashes), spans.starts, spans.ends, borders)


def page_words(lot: Lot, tokens: Tokens, owners: Ids, vocabulary: Vocabulary) -> Pairs:
    """(entity, word) for the words of every page and of its title; `owners` has the entity of each page, or -1."""
    titles = word_spans("\n".join(lot.titles))
    borders = np.cumsum([len(title) + 1 for title in lot.titles])
    title_page = np.searchsorted(borders, titles.starts, side="right")
    entities = np.append(np.repeat(owners, np.diff(tokens.borders)), owners[title_page])
    words = np.append(tokens.ids, vocabulary.find(titles.hashes))
    is_counted = (entities >= 0) & (words >= 0)
    return entities[is_counted], words[is_counted]


def link_words(tokens: Tokens, links: Links, *, window: int) -> Pairs:
    """(entity, word) for the words around every link to it."""
    place, words = words_around(tokens, links, window=window)
    return links.entity[place], words


def words_around(tokens: Tokens, links: Links, *, window: int) -> Pairs:
    """(place of a link, word) for all vocabulary words in the windows around links.

    A window is the `window // 2` words on each side, counted before stop words are left out; the link's own words are
    not part of it. A window ends with its page.
    """
    half = window // 2
    num_left = np.searchsorted(tokens.ends, links.start, side="right")
    first_right = np.searchsorted(tokens.starts, links.end, side="left")
    left, right = num_left[:, None] - np.arange(half, 0, -1), first_right[:, None] + np.arange(half)
    places = np.concatenate([left, right], axis=1)  # [links, words]
    first, last = (tokens.borders[links.page + side][:, None] for side in (0, 1))
    words = np.append(tokens.ids, -1)[np.where((places >= first) & (places < last), places, -1)]
    place, _ = np.nonzero(words >= 0)
    return place, words[words >= 0]


def edges(links: Links, owners: Ids) -> Pairs:
    """(entity of a page, entity it links to)."""
    has_owner = owners[links.page] >= 0
    return owners[links.page][has_owner], links.entity[has_owner]


def rows(pairs: Sequence[Pairs]) -> pa.Table:
    """Distinct (entity, word) pairs with their number."""
    entities, words = (np.concatenate([np.zeros(0, np.int64), *(pair[side] for pair in pairs)]) for side in (0, 1))
    keys, counts = np.unique((entities << 32) | words, return_counts=True)
    return pa.table({"entity": keys >> 32, "word": keys & 0xFFFFFFFF, "count": counts.astype(np.int64)})


def reduce(table: pa.Table, entities: range, target: Path) -> None:
    """Add up the counts of these entities, as a piece with prefix `target`. Pages that are gone may leave nothing."""
    keys, inverse = np.unique((table["entity"].to_numpy() << 32) | table["word"].to_numpy(), return_inverse=True)
    counts = np.bincount(inverse, weights=table["count"].to_numpy(), minlength=len(keys)).astype(np.int32)
    keys, counts = keys[counts > 0], counts[counts > 0]
    lengths = np.bincount((keys >> 32) - entities.start, minlength=len(entities))
    write_csr(target, lengths, words=(keys & 0xFFFFFFFF).astype(np.int32), counts=counts)


def join(pieces: Sequence[Path], target: Path) -> None:
    join_csr(pieces, target, _COLUMNS)


def totals(pieces: Sequence[Path], table: str, num_entities: int) -> Ids:
    """Of the graph, links to every entity; of another table, words of every entity."""
    found, row = np.zeros(num_entities, np.int64), 0
    for piece in pieces:
        offsets, words, counts = (read_array(f"{piece}.{name}.npy") for name in ("offsets", *_COLUMNS))
        if table == GRAPH:
            found += np.bincount(words, counts, num_entities).astype(np.int64)
        else:
            sums = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            found[row : row + len(offsets) - 1] = np.diff(sums[offsets])
        row += len(offsets) - 1
    return found


class WordCounts(Csr):
    """Reads one of the tables: `words, counts = table.row(entity)`; word ids are rows of the corpus vocabulary."""

    def __init__(self, part: Part, name: str) -> None:
        super().__init__(part, name, _COLUMNS)
        self.words, self.counts = self.columns
