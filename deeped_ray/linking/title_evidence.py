"""What the title of a candidate says for it, beside the mention, the text and the titles of other candidates.

    `Leeds` in a text about rugby       Leeds              Leeds Rhinos
    mention in title                    all of it          all of it
    title in mention                    all of it          a part: `leeds`
    rest of title                       nothing            `rhinos`
    rest in text                        nothing            whether the text has `rhinos`
    siblings                            nothing            how many other names have a candidate `* Rhinos`

Lists have many siblings: where `Derbyshire` and `Essex` stand side by side, `* County Cricket Club` fits both.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeped_ray.embeddings.name_forms import LONGEST_NAME, fold
from deeped_ray.linking import retrieval_kernels as kernels
from deeped_ray.linking.encoding import Floats, Ints
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.text import STOP_WORDS, bare_title

TITLE_MEASURES = (
    "mention in title",  # letters of the mention's words that stand in the title, as a share of the mention
    "title in mention",  # and as a share of the title
    "rest of title",  # logarithm of the number of words that only the title has, with its qualifier
    "rest in text",  # letters of these words that stand in the text, as a share of all of them
    "siblings",  # logarithm of the number of other names with a candidate whose title is built alike
)
_REMEMBERED = 2**14


class Named(NamedTuple):
    """The mentions of a document by their names."""

    surfaces: Sequence[str]
    name: Ints
    """Of every mention the number of its name: mentions that are written alike have the same."""

    @classmethod
    def of(cls, surfaces: Sequence[str]) -> "Named":
        numbers: dict[str, int] = {}
        return cls(surfaces, np.array([numbers.setdefault(each, len(numbers)) for each in surfaces], np.int64))


def compare_titles(mention: Ints, named: Named, titles: Sequence[str], shares: Floats, text_words: Ints) -> Floats:
    """A column for each of TITLE_MEASURES. Rows are candidates: of which mention, with which title.

    `shares` say how likely each candidate is among those of its mention, as far as is known.
    """
    measures, patterns = np.zeros((len(titles), len(TITLE_MEASURES)), np.float32), np.zeros(len(titles), np.int64)
    if len(titles):
        words = (_joined(named.surfaces), _joined(titles))
        kernels.compare_titles(mention, *words[0], *words[1], text_words, measures, patterns)
        measures[:, -1] = _siblings(patterns, named.name[mention], shares)
    return measures


def words_in(text: str, pause: Pause = no_pause) -> Ints:
    """The words of a text as titles are compared with them: their hashes, rising."""
    chunks = (chunk[at : at + LONGEST_NAME] for chunk in {*text.split()} for at in range(0, len(chunk), LONGEST_NAME))
    hashes = {word for chunk in paced(chunks, pause) for word in _folded(chunk)}
    return np.sort(np.fromiter(hashes, np.int64, len(hashes)))


@functools.lru_cache(maxsize=_REMEMBERED)
def _folded(chunk: str) -> tuple[int, ...]:
    return tuple(map(hash, fold(chunk).split()))


def _joined(names: Sequence[str]) -> tuple[Ints, Ints]:
    """The words of all names, and where those of each begin and end."""
    words = [_words(name) for name in names]
    return np.concatenate(words), np.cumsum([0, *map(len, words)])


@functools.lru_cache(maxsize=_REMEMBERED)
def _words(name: str) -> Ints:
    """Of a title, or of a mention, in order, with those of the qualifier: `(band)`, `, Iowa`.

    A row for each: its hash, its letters, again its letters if it stands first in the bare name, and whether it is a stop
    word.
    """
    words = fold(name).split()
    num_bare = len(fold(bare_title(name)).split())
    bare = {word: place for place, word in reversed([*enumerate(words[:num_bare])])}
    rows = [
        (hash(word), len(word), len(word) if bare.get(word) == place else 0, word in STOP_WORDS)
        for place, word in enumerate(words)
    ]
    return np.array(rows, np.int64).reshape(-1, 4)


def _siblings(patterns: Ints, name: Ints, shares: Floats) -> Floats:
    """log(1 + sum over other names of the largest share among their candidates with this pattern)."""
    kinds, kind = np.unique(patterns, return_inverse=True)
    num_names = int(name.max()) + 1
    cells = kind * num_names + name
    largest = np.zeros(len(kinds) * num_names, np.float32)
    np.maximum.at(largest, cells, shares)
    others = largest.reshape(-1, num_names).sum(axis=1)[kind] - largest[cells]
    siblings: Floats = np.where(patterns == 0, 0, np.log1p(np.maximum(others, 0))).astype(np.float32)
    return siblings
