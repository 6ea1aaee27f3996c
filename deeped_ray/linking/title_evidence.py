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
import threading
from collections.abc import Callable, Sequence

import numpy as np

from deeped_ray.embeddings.name_forms import LONGEST_NAME, fold
from deeped_ray.linking import retrieval_kernels as kernels
from deeped_ray.linking.encoding import Floats, Ints
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.linking.text_kernels import fold_words
from deeped_ray.text import STOP_WORDS, bare_title, codes_of, hash_tokens

TITLE_MEASURES = (
    "mention in title",  # letters of the mention's words that stand in the title, as a share of the mention
    "title in mention",  # and as a share of the title
    "rest of title",  # logarithm of the number of words that only the title has, with its qualifier
    "rest in text",  # letters of these words that stand in the text, as a share of all of them
    "siblings",  # logarithm of the number of other names with a candidate whose title is built alike
)
_REMEMBERED = 2**14
_Page = tuple[dict[int, tuple[int, int]], Ints]


class TitleWords:
    """The words of titles, remembered in one array that is only added to, so that threads read it without a lock.

    When it is full, a new one takes its place.
    """

    def __init__(self, title_of: Callable[[int], str], *, size: int = 2**17) -> None:
        self._title_of, self._size, self._number = title_of, size, 0
        self._page: _Page = ({}, np.empty((size, 4), np.int64))
        self._lock = threading.Lock()

    def take(self, entities: Ints) -> tuple[Ints, Ints]:
        """The array, and where the words of each title begin and end in it, [n, 2]."""
        asked = entities.tolist()
        known, words = self._page
        places = [*map(known.get, asked)]
        if None in places:
            known, words = self._add(asked)
            places = [known[entity] for entity in asked]
        return words, np.array(places, np.int64).reshape(-1, 2)

    def _add(self, asked: Sequence[int]) -> "_Page":
        with self._lock:
            known, words = self._page
            new = {entity: self._words_of(entity) for entity in {*asked} - known.keys()}
            if self._number + sum(map(len, new.values())) > len(words):
                new = {entity: self._words_of(entity) for entity in {*asked}}
                known, words = {}, np.empty((max(self._size, sum(map(len, new.values()))), 4), np.int64)
                self._number = 0
            for entity, rows in new.items():
                end = self._number + len(rows)
                words[self._number : end] = rows
                known[entity] = (self._number, end)  # last: whoever finds it finds the rows
                self._number = end
            self._page = known, words
            return self._page

    def _words_of(self, entity: int) -> Ints:
        return words_of_name(self._title_of(entity)[:LONGEST_NAME])


def compare_titles(
    mention: Ints,
    names: Ints,
    surfaces: Sequence[Ints],
    titles: tuple[Ints, Ints],
    shares: Floats,
    text_words: Ints,
    measures: Floats,
) -> None:
    """Fills a column for each of TITLE_MEASURES. Rows are candidates: of which mention, with the words of which title.

    `names` and `surfaces` are the names and words of the mentions, `titles` comes from `TitleWords`. `shares` say how
    likely each candidate is among those of its mention, as far as is known.
    """
    if len(mention):
        kernels.compare_titles(mention, *_joined(surfaces), *titles, text_words, names, shares, measures)


def words_in(text: str, pause: Pause = no_pause) -> Ints:
    """The words of a text as titles are compared with them: their hashes, rising."""
    codes = codes_of(text)
    hashes, odd = np.empty(len(codes) + 1, np.uint64), np.empty((len(codes) // 2 + 1, 2), np.int64)
    number, num_odd = fold_words(codes, LONGEST_NAME, hashes, odd)
    found = hashes[:number].view(np.int64)
    if num_odd:
        stretches = {chunk for start, end in odd[:num_odd].tolist() for chunk in text[start:end].split()}
        chunks = (chunk[at : at + LONGEST_NAME] for chunk in stretches for at in range(0, len(chunk), LONGEST_NAME))
        found = np.concatenate([found, *(_folded(chunk) for chunk in paced(chunks, pause))])
    return np.sort(found)


@functools.lru_cache(maxsize=_REMEMBERED)
def _folded(chunk: str) -> Ints:
    return _hashes(fold(chunk).split())


def _hashes(words: Sequence[str]) -> Ints:
    return hash_tokens(words).view(np.int64)


def _joined(names: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The words of all names, and where those of each begin and end."""
    ends = np.empty(len(names) + 1, np.int64)
    ends[0] = 0
    np.cumsum([*map(len, names)], out=ends[1:])
    return np.concatenate(names), ends


def words_of_name(name: str) -> Ints:
    """Of a title, or of a mention, in order, with those of the qualifier: `(band)`, `, Iowa`.

    A row for each: its hash, its letters, again its letters if it stands first in the bare name, and whether it is a stop
    word.
    """
    folded, bare_name = fold(name), bare_title(name)
    words = folded.split()
    num_bare = len(words) if bare_name == name else len(fold(bare_name).split())
    bare = {word: place for place, word in reversed([*enumerate(words[:num_bare])])}
    rows = np.empty((len(words), 4), np.int64)
    rows[:, 0] = _hashes_of_words(folded, words)
    rows[:, 1:] = [
        (len(word), len(word) if bare.get(word) == place else 0, word in STOP_WORDS) for place, word in enumerate(words)
    ] or 0
    return rows


def _hashes_of_words(folded: str, words: Sequence[str]) -> Ints:
    codes, hashes = codes_of(folded), np.empty(len(words) + 1, np.uint64)
    number, num_odd = fold_words(codes, len(codes), hashes, np.empty((len(words) + 1, 2), np.int64))
    return hashes[:number].view(np.int64) if not num_odd else _hashes(words)
