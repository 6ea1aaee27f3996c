"""What is known of entities: the words of their pages, of the windows around links to them, and of their titles.

A `Bags` is CSR over entities. Words are rows of the word matrix; words without a vector are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.text import content_words, mix64

NOTHING, TITLE_ONLY, PAGE, LINKS, PAGE_AND_LINKS, NOT_TRAINED = range(6)
EVIDENCE_NAMES = ("nothing", "title only", "page", "links", "page and links", "not trained")
Ids = npt.NDArray[np.int64]


class Bags(NamedTuple):
    """Words of entity i are cells [offsets[i], offsets[i + 1]), by rising row."""

    offsets: Ids
    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def owners(self) -> Ids:
        """The entity of every cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def masses(self) -> npt.NDArray[np.float64]:
        """Number of words of every entity, repeated ones counted."""
        return np.bincount(self.owners, self.counts, len(self)).astype(np.float64)

    def bag(self, entity: int) -> tuple[Ids, npt.NDArray[np.float64]]:
        cells = slice(int(self.offsets[entity]), int(self.offsets[entity + 1]))
        return self.rows[cells].astype(np.int64), self.counts[cells].astype(np.float64)


class Evidence(NamedTuple):
    """All that is known of some entities."""

    page: Bags
    links: Bags
    title: Bags

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        has_page, has_links, has_title = (np.diff(bags.offsets) > 0 for bags in self)
        text = 1 + has_page + 2 * has_links
        return np.where(has_page | has_links, text, has_title).astype(np.int8)


def bags_of(texts: Sequence[npt.NDArray[np.int64]]) -> Bags:
    """Bags of word rows as they stand in texts: sorted, equal ones counted, negative ones (no vector) left out."""
    owners = np.repeat(np.arange(len(texts)), [len(rows) for rows in texts])
    rows = np.concatenate([*texts, np.zeros(0, dtype=np.int64)])
    return _counted(owners[rows >= 0], rows[rows >= 0], len(texts))


def _counted(owners: Ids, rows: Ids, num_entities: int) -> Bags:
    keys, counts = np.unique((owners << 32) | rows, return_counts=True)
    lengths = np.bincount(keys >> 32, minlength=num_entities)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Bags(offsets, (keys & 0xFFFFFFFF).astype(np.int32), counts.astype(np.float32))


class EvidenceReader:
    """Reads the evidence of any entities of a corpus."""

    def __init__(self, corpus: Part, words: Words) -> None:
        self._catalogue = Catalogue(corpus)
        self._pages = WordCounts(corpus, PAGE_WORDS)
        self._links = WordCounts(corpus, LINK_WORDS)
        self._words = words
        self._word_rows = words.rows_of_corpus_ids(len(corpus.array("vocabulary.counts")))

    def __len__(self) -> int:
        return len(self._catalogue)

    def work(self, start: int, end: int) -> Ids:
        """Expected work of some entities: the words that have to be gathered, and a little for the entity itself."""
        borders = slice(start, end + 1)
        return np.diff(self._pages.offsets[borders]) + np.diff(self._links.offsets[borders]) + 20

    def read(self, entities: Ids) -> Evidence:
        titles = self.texts([content_words(title) for title in self.titles(entities)])
        return Evidence(self._gather(self._pages, entities), self._gather(self._links, entities), titles)

    def titles(self, entities: Ids) -> list[str]:
        return [self._catalogue.title(int(entity)) for entity in entities]

    def texts(self, texts: Sequence[Sequence[str]]) -> Bags:
        """Bags of the words of texts that have a vector."""
        owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        rows = self._words.find_all([word for text in texts for word in text])
        return _counted(owners[rows >= 0], rows[rows >= 0], len(texts))

    def _gather(self, counts: WordCounts, entities: Ids) -> Bags:
        starts, lengths = counts.offsets[entities], counts.offsets[entities + 1] - counts.offsets[entities]
        firsts = np.cumsum(lengths) - lengths
        cells = np.arange(int(lengths.sum())) + np.repeat(starts - firsts, lengths)
        # consecutive entities are one slice of the memory map, which reads ahead
        is_slice = len(entities) > 0 and len(cells) > 0 and int(cells[-1] - cells[0]) == len(cells) - 1
        where = slice(int(cells[0]), int(cells[-1]) + 1) if is_slice else cells
        rows, numbers = self._word_rows[counts.words[where]], np.asarray(counts.counts[where])
        is_known = rows >= 0
        owners = np.repeat(np.arange(len(entities)), lengths)[is_known]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(entities)))]).astype(np.int64)
        return Bags(offsets, rows[is_known], numbers[is_known].astype(np.float32))


def fingerprints(
    evidence: Evidence, titles: Sequence[str], word_hashes: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of everything an entity's vector is made of, by words and not by their ids, which change with the dump."""
    total = hashes_of(titles)
    with np.errstate(over="ignore"):
        for salt, bags in enumerate(evidence, start=1):
            # the sum does not depend on the order of words; mixing keeps equal sums of other cells from cancelling
            cells = mix64(
                word_hashes[bags.rows] + bags.counts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
            )
            sums = np.zeros(len(bags), dtype=np.uint64)
            np.add.at(sums, bags.owners, cells)
            total = mix64(total ^ sums)
    return total
