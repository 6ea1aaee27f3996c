"""The words of the corpus: content words that are frequent enough, in hash order; a word's row is its id.

words-*.parquet                      in the part `pages`: all content words with their frequencies
vocabulary.*, vocabulary.counts.npy  in the part `corpus`: those frequent enough
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.corpus.pages import Ids
from deeped_ray.corpus.shuffle import read_merged
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, hashes_of, write_hashed_strings
from deeped_ray.text import Hashes, hash_tokens, is_content_word, words_of
from deeped_ray.types import DeepEdError, Page

WORDS_AT_ONCE = 20_000
FILES = ("vocabulary.hashes.npy", "vocabulary.arrow", "vocabulary.counts.npy")


def rows(pages: Iterable[Page]) -> pa.Table:
    """The content words of articles with their number; each distinct word is looked at once, however often it occurs."""
    counts: Counter[str] = Counter()
    for page in pages:
        if page.redirect is None and not page.is_disambiguation:
            counts.update(words_of(page.title))
            counts.update(words_of(page.text))
    words = {word: count for word, count in counts.items() if is_content_word(word)}
    columns = {"word": pa.array(words, pa.string()), "count": pa.array(words.values(), pa.int64())}
    return pa.table({"hash": hashes_of(list(words)), **columns})


def reduce(table: pa.Table) -> pa.Table:
    """The distinct words, in hash order. A word whose last page is gone adds up to nothing."""
    table = table.group_by(["hash", "word"], use_threads=False).aggregate([("count", "sum")])
    table = table.rename_columns({"count_sum": "count"}).sort_by([("hash", "ascending"), ("word", "ascending")])
    return table.filter(pc.greater(table["count"], 0)).combine_chunks()


class Vocabulary(NamedTuple):
    """Finds the ids of all words of a text at once, by the hashes of `text.word_spans`; numpy arrays, which workers share."""

    hashes: Hashes
    """Rising."""
    ids: Ids

    @classmethod
    def of(cls, words: Sequence[str]) -> "Vocabulary":
        return cls._sorted(hash_tokens(words))

    @classmethod
    def read(cls, words: StringIndex) -> "Vocabulary":
        """Some words at a time: the strings of all of them, once in memory, would stay with the process."""
        starts = range(0, len(words), WORDS_AT_ONCE)
        blocks = (np.arange(start, min(start + WORDS_AT_ONCE, len(words))) for start in starts)
        return cls._sorted(
            np.concatenate([np.zeros(0, np.uint64), *(hash_tokens(words.take(rows)) for rows in blocks)])
        )

    @classmethod
    def _sorted(cls, hashes: Hashes) -> "Vocabulary":
        order = np.argsort(hashes)
        return cls(hashes[order], order)

    def find(self, hashes: Hashes) -> Ids:
        """-1 for words outside the vocabulary."""
        rows = np.minimum(self.hashes.searchsorted(hashes), len(self.hashes) - 1)
        return np.where(self.hashes[rows] == hashes, self.ids[rows], -1)


def join(pages: Part, folder: Path, *, min_count: int) -> Vocabulary:
    """Write the words that are frequent enough."""
    table = read_merged(pages.files("words-*.parquet"), filters=[("count", ">=", min_count)])
    if not table.num_rows:
        raise DeepEdError(
            f"No word of the dump occurs {min_count} times. Lower `min_word_count`: --set corpus.min_word_count=1."
        )
    write_hashed_strings(folder, "vocabulary", table["hash"].to_numpy(), table["word"])
    np.save(folder / "vocabulary.counts.npy", table["count"].to_numpy())
    return Vocabulary.read(StringIndex(folder, "vocabulary"))


def keep(corpus: Part, folder: Path) -> Vocabulary:
    """Take over the vocabulary of another corpus, with its frequencies: word vectors and all that rests on them stay."""
    for name in FILES:
        shutil.copy(corpus.path / name, folder)
    return Vocabulary.read(StringIndex(folder, "vocabulary"))
