"""Entities whose title or redirect resembles a name that the mention table does not know.

A name resembles another if, case, diacritics and punctuation aside (`squeeze`),

    equal     both have the same letters in the same order: `JK Rowling`, `J. K. Rowling`
    typo      one letter is missing, added or another, or two neighbours are swapped: `Barrack Obama`
    words     one has all words of the other, and they are most of it: `Schumacher`, `Michael Schumacher`
    initials  it is the initials of the other: `UNHCR`

Precise rather than complete: better nothing than nonsense. No name is compared with all others. Every name is filed
under a few keys; a look-up compares only with the names that share one:

    names.keys.npy    64-bit hashes, in order
    names.rows.npy    the name that each is a key of, as a row of the corpus's titles
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from jaxtyping import Float

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import hash64, read_strings, take_strings
from deeped_ray.text import STOP_WORDS, bare_title, is_content_word, spelled_words, without_excess_marks, words_of

MIN_TYPO_LENGTH = 6
"""Shorter names with one other letter are other names: Clark, Clara."""
MIN_WORDS_SHARE = 0.4
MIN_ONE_WORD_LENGTH = 4
INITIALS_RESEMBLANCE = 0.6
ACRONYM_LENGTHS = range(3, 7)
MAX_COMPARED = 2_000
"""Names that share a key with more others than this say too little."""
MAX_FILED = 200_000
"""A word of more names than this is not looked at."""
REMEMBERED = 4096
"""Look-ups whose answers are kept."""
LONGEST_NAME = 255
"""Wikipedia's titles have no more bytes."""
_BLOCK = 200_000
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_JOINED = re.compile(r"['’‘ʻ`.]")  # O'Neill, U.S.


def fold(name: str) -> str:
    """`Beyoncé O'Neill-Größe` -> `beyonce oneill grosse`."""
    if not name.isascii():
        decomposed = unicodedata.normalize("NFKD", without_excess_marks(name))
        name = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    folded = name.casefold().translate(_LETTERS)
    return " ".join(words_of(_JOINED.sub("", folded).replace("_", " ")))


def squeeze(name: str) -> str:
    return fold(name).replace(" ", "")


def initials_of(name: str) -> str:
    """`Office of the High Commissioner` -> `ohc`: of capitalised words."""
    words = (fold(word) for word in spelled_words(name) if word[0].isupper())
    return "".join(word[0] for word in words if word)


class Form(NamedTuple):
    """What names are compared by."""

    whole: str
    """Squeezed, with the qualifier: `apple fruit`."""
    bare: str
    """Squeezed, without."""
    words: frozenset[str]
    """Words of the bare name but stop words."""
    telling: frozenset[str]
    """These without numbers and single letters, which are not filed."""
    initials: str


def form_of(name: str, *, with_initials: bool = True) -> Form:
    """Initials take half of the time, and only acronyms are compared with them."""
    bare = bare_title(name)
    folded = fold(bare)
    whole = squeeze(name) if bare != name else folded.replace(" ", "")
    words = frozenset(folded.split()) - STOP_WORDS
    initials = initials_of(bare) if with_initials else ""
    return Form(whole, folded.replace(" ", ""), words, frozenset(filter(is_content_word, words)), initials)


class Surface(NamedTuple):
    """What is looked for."""

    form: Form
    acronym: str
    is_name: bool
    """Has a capital; a common noun in lower case is no part of a name."""


def surface_of(surface: str) -> Surface:
    return Surface(form_of(surface), acronym_of(surface), any(letter.isupper() for letter in surface))


def acronym_of(surface: str) -> str:
    """The letters of a surface that may be an acronym, else nothing."""
    letters = surface.replace(".", "").replace("&", "").strip()
    return letters.lower() if letters.isalpha() and letters.isupper() and len(letters) in ACRONYM_LENGTHS else ""


def resemblance(surface: str, name: str) -> float:
    """From 0, for not at all, to 1."""
    return _resemblance(surface_of(surface), form_of(name))


def _resemblance(surface: Surface, name: Form) -> float:
    ours = surface.form.whole
    if not ours:
        return 0.0
    if ours in (name.whole, name.bare):
        return 1.0
    best = _share_of_words(surface, name)
    if surface.acronym and surface.acronym == name.initials:
        best = max(best, INITIALS_RESEMBLANCE)
    return max(best, 1 - 1 / max(len(ours), len(name.bare))) if _is_typo(ours, name.bare) else best


def _share_of_words(surface: Surface, name: Form) -> float:
    """Letters of the words that both have, of the one that has all words of the other; 0 if neither has."""
    smaller, larger = surface.form, name
    if len(smaller.words) > len(larger.words):
        smaller, larger = larger, smaller
        if len(smaller.telling) < 2:  # one word is not enough to stand for more: Smith for Peter Smith
            return 0.0
    if not smaller.telling or not smaller.words <= larger.words:
        return 0.0
    num_letters = sum(map(len, smaller.words))
    if len(smaller.telling) == 1 and (num_letters < MIN_ONE_WORD_LENGTH or not surface.is_name):
        return 0.0
    share = num_letters / sum(map(len, larger.words))
    # words in another order, or with other small words between them, are not quite the name
    return 0.0 if share < MIN_WORDS_SHARE else 0.95 * share


def _is_typo(a: str, b: str) -> bool:
    """Whether one edit, or a swap of neighbours, makes one of the other; digits are no typing errors."""
    shorter = min(len(a), len(b))
    if abs(len(a) - len(b)) > 1 or shorter < MIN_TYPO_LENGTH:
        return False
    half = (shorter - 2) // 2  # one half at least is left as it was
    if a[:half] != b[:half] and a[-half:] != b[-half:]:
        return False
    start = 0
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    is_swap = len(left) == 2 and left == right[::-1]
    is_edit = len(left) <= 1 and len(right) <= 1 and left != right
    return (is_swap or is_edit) and not any(letter.isdigit() for letter in left + right)


# -- keys


def keys_of(form: Form) -> set[str]:
    """What a name is filed under."""
    keys = {f"={form.whole}", f"={form.bare}"} - {"="}
    keys |= {f"w{word}" for word in form.telling}
    if len(form.initials) in ACRONYM_LENGTHS:
        keys.add(f"i{form.initials}")
    if (length := len(form.bare)) >= MIN_TYPO_LENGTH:
        half = length // 2
        keys |= {_first_half(form.bare[:half], length), _second_half(form.bare[half:], length)}
    return keys


def typo_keys(squeezed: str) -> Iterator[str]:
    """An edit leaves one half of a name as it was, unless it swaps the letters on both sides of the middle."""
    for length in range(max(len(squeezed) - 1, MIN_TYPO_LENGTH), len(squeezed) + 2):
        half = length // 2
        yield _first_half(squeezed[:half], length)
        yield _second_half(squeezed[half - length :], length)
    middle = len(squeezed) // 2
    if len(squeezed) >= MIN_TYPO_LENGTH:
        yield f"={squeezed[: middle - 1]}{squeezed[middle]}{squeezed[middle - 1]}{squeezed[middle + 1 :]}"


def _first_half(letters: str, length: int) -> str:
    return f"<{length}:{letters}"


def _second_half(letters: str, length: int) -> str:
    return f">{length}:{letters}"


def write_name_search(folder: Path, names: pa.Array) -> int:
    """File all names; returns their number."""
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)]
    hash_of = lru_cache(maxsize=2**18)(hash64)  # words come again and again
    for start in range(0, len(names), _BLOCK):
        filed = [keys_of(form_of(name)) for name in names[start : start + _BLOCK].to_pylist()]
        keys.append(np.array([hash_of(key) for each in filed for key in each], np.uint64))
        rows.append(np.repeat(np.arange(start, start + len(filed), dtype=np.int32), [len(each) for each in filed]))
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    order = np.lexsort((all_rows, all_keys))
    np.save(folder / "names.keys.npy", all_keys[order])
    np.save(folder / "names.rows.npy", all_rows[order])
    return len(names)


# -- looking up


class Resembling(NamedTuple):
    entity_id: int
    resemblance: float


class SimilarName(NamedTuple):
    entity_id: int
    resemblance: float
    similarity: float
    """Cosine of the entity's vector and the context's."""


class NameSearch:
    """Finds entities by what their names look like."""

    def __init__(
        self,
        keys: npt.NDArray[np.uint64],
        rows: npt.NDArray[np.int32],
        names: pa.Array,
        entities: npt.NDArray[np.int32],
    ) -> None:
        self._keys, self._rows, self._names, self._entities = keys, rows, names, entities
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._find)  # the same names come again and again

    @classmethod
    def open(cls, kb: KnowledgeBase) -> "NameSearch":
        index, corpus = kb.open("index"), kb.open("corpus")
        # plain arrays over the maps: np.memmap makes every access dearer
        keys, rows = (np.asarray(index.array(f"names.{name}")) for name in ("keys", "rows"))
        return cls(keys, rows, read_strings(corpus.path, "titles"), np.asarray(corpus.array("titles.entities")))

    def find(self, surface: str, *, count: int) -> tuple[Resembling, ...]:
        """The entities whose title or redirect resembles a surface, the most alike first."""
        return self._remembered(surface, count=count) if len(surface) <= LONGEST_NAME else ()

    def _find(self, surface: str, *, count: int) -> tuple[Resembling, ...]:
        ours = surface_of(surface)
        rows = self._candidates(ours)
        best: dict[int, float] = {}
        names = take_strings(self._names, rows)
        for entity, name in zip(self._entities[rows].tolist(), names, strict=True):
            alike = _resemblance(ours, form_of(name, with_initials=bool(ours.acronym)))
            if alike > best.get(entity, 0.0):
                best[entity] = alike
        ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Resembling(*item) for item in ranked[:count])

    def similar_names(
        self,
        surface: str,
        context: Float[np.ndarray, " d"],
        entity_vectors: Float[np.ndarray, "E d"],
        *,
        count: int,
        considered: int = 100,
    ) -> list[SimilarName]:
        """Those of `find` by the sum of resemblance and similarity to the averaged context, best first."""
        found = self.find(surface, count=considered)
        if not found:
            return []
        norm = float(np.linalg.norm(context))
        cosines = entity_vectors[[each.entity_id for each in found]] @ context / (norm or 1.0)
        similar = [SimilarName(*each, cosine) for each, cosine in zip(found, cosines.tolist(), strict=True)]
        return sorted(similar, key=lambda each: (-each.resemblance - each.similarity, each.entity_id))[:count]

    def _candidates(self, surface: Surface) -> npt.NDArray[np.int64]:
        """Rows of names that share a telling key, or two words, with a surface."""
        squeezed = surface.form.whole
        if not squeezed:
            return np.zeros(0, np.int64)
        keys = [f"={squeezed}", *typo_keys(squeezed), *([f"i{surface.acronym}"] if surface.acronym else [])]
        found = [rows for rows in map(self._filed, keys) if len(rows) <= MAX_COMPARED]
        found.append(self._sharing_words(surface.form.telling))
        return np.unique(np.concatenate(found)).astype(np.int64)

    def _sharing_words(self, words: frozenset[str]) -> npt.NDArray[np.int32]:
        filed = [rows for rows in (self._filed(f"w{word}") for word in words) if len(rows) <= MAX_FILED]
        rows, times = np.unique(np.concatenate([self._rows[:0], *filed]), return_counts=True)
        rows = rows[times >= min(2, len(words))]
        return rows if len(rows) <= MAX_COMPARED else rows[:0]

    def _filed(self, key: str) -> npt.NDArray[np.int32]:
        hashed = np.uint64(hash64(key))
        start, end = self._keys.searchsorted(hashed, "left"), self._keys.searchsorted(hashed, "right")
        return self._rows[start:end]
