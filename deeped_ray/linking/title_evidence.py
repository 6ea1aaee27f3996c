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
from deeped_ray.linking.encoding import Ints
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.linking.remembered import Slots
from deeped_ray.linking.text_kernels import fold_words, name_words
from deeped_ray.text import STOP_WORDS, bare_title, codes_of, hash_tokens

TITLE_MEASURES = (
    "mention in title",  # letters of the mention's words that stand in the title, as a share of the mention
    "title in mention",  # and as a share of the title
    "rest of title",  # logarithm of the number of words that only the title has, with its qualifier
    "rest in text",  # letters of these words that stand in the text, as a share of all of them
    "siblings",  # logarithm of the number of other names with a candidate whose title is built alike
)
_REMEMBERED = 2**14


class TitleWords:
    """The words of titles, remembered in one array that is only added to, so that threads read it without a lock.

    When it is full, a new one takes its place.
    """

    def __init__(self, title_of: Callable[[int], str], *, size: int = 2**17) -> None:
        self._title_of, self._size = title_of, size
        self._page = self._empty(size)
        self._lock = threading.Lock()

    def _empty(self, size: int) -> tuple[Slots, Ints, Ints]:
        """Which titles there are, where the words of each begin and end, and the words."""
        return Slots(size), np.zeros((size + 1, 2), np.int64), np.empty((size, 4), np.int64)

    def take(self, entities: Ints) -> tuple[Ints, Ints]:
        """The array, and where the words of each title begin and end in it, [n, 2]."""
        slots, places, words = self._page
        found, num_missing = slots.find(entities)
        return (words, places[found]) if not num_missing else self._add(entities)

    def _add(self, entities: Ints) -> tuple[Ints, Ints]:
        with self._lock:
            slots, places, words = self._page
            new = np.unique(entities[slots.find(entities)[0] < 0])
            rows = self._words_of(new)
            end = int(places[slots.given - 1, 1]) if slots.given else 0
            if max(slots.given + len(new), end + sum(map(len, rows))) > min(slots.size, len(words)):
                new, end = np.unique(entities), 0
                rows = self._words_of(new)
                slots, places, words = self._empty(max(self._size, len(new), sum(map(len, rows))))
            for place, each in enumerate(rows, slots.given):
                words[end : end + len(each)] = each
                places[place] = end, end + len(each)
                end += len(each)
            slots.add(new)
            self._page = slots, places, words
            return words, places[slots.find(entities)[0]]

    def _words_of(self, entities: Ints) -> list[Ints]:
        return words_of_names([self._title_of(entity)[:LONGEST_NAME] for entity in entities.tolist()])


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


def words_of_name(name: str) -> Ints:
    """Of a title, or of a mention, in order, with those of the qualifier: `(band)`, `, Iowa`.

    A row for each: its hash, its letters, again its letters if it stands first in the bare name, and whether it is a stop
    word.
    """
    return words_of_names([name])[0]


def words_of_names(names: Sequence[str]) -> list[Ints]:
    """`words_of_name` for many at once: those in ASCII are left to a kernel."""
    plain = [name for name in names if name.isascii()]
    codes = np.frombuffer("".join(plain).encode(), np.uint8).astype(np.uint32)
    ends = np.cumsum([len(name) for name in plain], dtype=np.int64)
    bare_ends = np.array([len(bare_title(name)) for name in plain], np.int64)
    rows, row_ends = np.empty((len(codes), 4), np.int64), np.empty(len(plain), np.int64)
    name_words(codes, ends, bare_ends, _STOP_WORDS, rows, row_ends)
    found = iter(np.split(rows, row_ends))
    return [next(found) if name.isascii() else _spelled_words(name) for name in names]


_STOP_WORDS = np.sort(_hashes(sorted(STOP_WORDS)))


def _spelled_words(name: str) -> Ints:
    bare_name, words = bare_title(name), fold(name).split()
    num_bare = len(words) if bare_name == name else len(fold(bare_name).split())
    bare = {word: place for place, word in reversed([*enumerate(words[:num_bare])])}
    rows = np.empty((len(words), 4), np.int64)
    rows[:, 0] = _hashes(words)
    rows[:, 1:] = [
        (len(word), len(word) if bare.get(word) == place else 0, word in STOP_WORDS) for place, word in enumerate(words)
    ] or 0
    return rows
