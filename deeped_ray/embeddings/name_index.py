"""Finds the entities that a name may mean although it is not written as the mention table has it.

Case, diacritics and punctuation aside (`fold`), a name of the corpus is found if it

    equals      has the same letters in the same order: `JK Rowling`, `J. K. Rowling`
    words       has all words of the mention, in any order: `Lebed`, `Alexander Lebed`
    initials    spells the mention with its initials: `AFP`, `Agence France-Presse`; less so `ATC`, `Air traffic control`
    inflection  differs in an ending, as the dump's own links do: `Kurdish`, `Kurds`
    typo        differs in one letter, or two neighbours are swapped: `Barrack Obama`
    part        is a part of the mention: `NPR news`, `NPR`

A look-up reads the lists of some keys (`name_filing`).
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings import name_lists
from deeped_ray.embeddings.name_filing import MIN_SHARE, MOST
from deeped_ray.embeddings.name_forms import (
    LONGEST_NAME,
    MIN_STEM,
    MIN_TYPO_LENGTH,
    MOST_WORDS,
    Form,
    acronym_of,
    fold,
    form_of,
    half_keys,
    is_filed,
    is_typo,
    squeeze,
)
from deeped_ray.embeddings.name_lists import HEAD_SALT, pair_keys
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64, hashes_of
from deeped_ray.text import STOP_WORDS, bare_title

MatchKind = Literal["equals", "words", "initials", "inflection", "typo", "part"]
KINDS: tuple[MatchKind, ...] = get_args(MatchKind)
EQUALS, WORDS, INITIALS, INFLECTION, TYPO, PART = range(len(KINDS))
MAX_COMPARED = 100
"""Names that share half of their letters with more others than this are not compared with them."""
LOWER_SHARE = np.float32(0.25)
"""What initials of words in lower case count: fewer of them are ever used as a name."""
REMEMBERED = 8192
"""Look-ups whose answers are kept."""
_Ints = npt.NDArray[np.int64]


class Matches(NamedTuple):
    """Entities whose names match a surface: an entity may match in several ways."""

    entities: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int8]
    strengths: npt.NDArray[np.float32]
    """equals: share of the name's links; words: share of the name's letters; all from 0 to 1."""


class NamedWords(NamedTuple):
    """The words of a surface that are filed."""

    lists: _Ints
    """A row for each: where the list of its entities begins and ends in `NameIndex.entities`, and its letters."""
    num_letters: int


_NOTHING = Matches(np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.float32))


class NameIndex:
    """Finds entities by what their names look like."""

    def __init__(self, index: Part, corpus: Part) -> None:
        # plain arrays over the maps: np.memmap makes every access dearer
        self._keys, self._offsets, self.entities, self._weights, self._halves, self._rows = (
            np.asarray(index.array(f"names.{name}"))
            for name in ("keys", "offsets", "entities", "weights", "halves", "halves_rows")
        )
        self._endings: list[tuple[str, str]] = [
            (ending, other) for ending, other in json.loads((index.path / "names.endings.json").read_text())
        ]
        self._names = MentionTable(corpus)
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._find)  # the same names come again and again
        self._form = lru_cache(maxsize=REMEMBERED)(form_of)

    @classmethod
    def open(cls, kb: KnowledgeBase) -> "NameIndex":
        return cls(kb.open("index"), kb.open("corpus"))

    def find(self, surface: str) -> Matches:
        """The entities that a surface may name, by kind of match."""
        return self._remembered(surface) if len(surface) <= LONGEST_NAME else _NOTHING

    def _find(self, surface: str) -> Matches:
        form = self._form(surface)
        if not form.squeezed:
            return _NOTHING
        found = [self._listed(f"={form.squeezed}", EQUALS)]
        if form.words:
            found.append(self._with_words(form, self._names.candidates(surface).entity))
        if acronym := acronym_of(surface):
            found.append(self._listed(f"i{acronym}", INITIALS))
            lower = self._listed(f"l{acronym}", INITIALS)
            found.append(lower._replace(strengths=lower.strengths * LOWER_SHARE))
        if len(form.words) == 1:
            inflected = [f"={other}" for other in self._inflected(form.squeezed)]
            found += [matches for _, matches in self._listed_all(inflected, INFLECTION)]
        if not len(found[0].entities):
            found += [*self._typos(form.squeezed), *self._parts(surface)]
        entities, kinds, strengths = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return Matches(entities, kinds, strengths)

    def _parts(self, surface: str) -> Iterator[Matches]:
        """Names that the surface contains, the longest at each place."""
        words = fold(surface).split()[:MOST_WORDS]
        parts = [
            words[first : first + length]
            for length in range(len(words) - 1, 0, -1)
            for first in range(len(words) - length + 1)
        ]
        parts = [part for part in parts if any(is_filed(word) and word not in STOP_WORDS for word in part)]
        names, total = ["".join(part) for part in parts], sum(map(len, words))
        for place, found in self._listed_all([f"={name}" for name in names], PART):
            yield found._replace(strengths=found.strengths * np.float32(len(names[place]) / total))

    def _inflected(self, word: str) -> Iterator[str]:
        for ending, other in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM:
                yield word[: len(word) - len(ending)] + other

    def _listed(self, key: str, kind: int) -> Matches:
        rows = self._read(np.uint64(hash64(key)))
        if not _size(rows):  # most keys are nobody's
            return _NOTHING
        return _matches(self.entities[rows], kind, self._weights[rows].astype(np.float32) / np.float32(MOST))

    def _listed_all(self, keys: Sequence[str], kind: int) -> Iterator[tuple[int, Matches]]:
        """Of many keys, most of which are nobody's, those that are somebody's."""
        hashes = hashes_of(keys)
        places = np.minimum(self._keys.searchsorted(hashes), len(self._keys) - 1)
        for place in np.flatnonzero(self._keys[places] == hashes).tolist() if len(self._keys) else []:
            yield place, self._listed(keys[place], kind)

    def _read(self, key: np.uint64) -> slice:
        """Where the list of a key stands, or its head if it is long."""
        rows = self._list(key)
        return rows if _size(rows) <= name_lists.HEAD else self._list(key ^ HEAD_SALT)

    def _list(self, key: np.uint64) -> slice:
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return slice(0, 0)
        return slice(int(self._offsets[place]), int(self._offsets[place + 1]))

    def _with_words(self, form: Form, known: npt.NDArray[Any]) -> Matches:
        """Entities that have all words in their names, in one name or in several; `known` need not be in a head."""
        keys = hashes_of([f"w{word}" for word in form.words])
        lists = sorted((self._list(key) for key in keys), key=_size)
        if not _size(lists[0]):
            return _NOTHING
        if _size(lists[0]) <= name_lists.HEAD:
            entities = self.entities[lists[0]]
        else:
            rarest = keys[np.argsort([_size(self._list(key)) for key in keys], kind="stable")]
            key = pair_keys(rarest[:1], rarest[1:2])[0] if len(keys) > 1 else keys[0]
            entities = np.union1d(self.entities[self._read(key)], known).astype(np.int32)
        weights = np.full(len(entities), MOST, np.uint8)
        for rows in lists:
            is_there, theirs = self._in_list(rows, entities)
            entities, weights = entities[is_there], np.minimum(weights, theirs)[is_there]
        letters = np.maximum(MOST + 1 - weights.astype(np.int64), form.num_letters)
        return _matches(entities, WORDS, (form.num_letters / letters).astype(np.float32))

    def words_of(self, surface: str) -> NamedWords:
        form = self._form(surface[:LONGEST_NAME])
        lists = (self._list(np.uint64(hash64(f"w{word}"))) for word in form.words)
        rows = [(rows.start, rows.stop, len(word)) for rows, word in zip(lists, form.words, strict=True)]
        return NamedWords(np.array(rows, np.int64).reshape(-1, 3), form.num_letters)

    def _in_list(self, rows: slice, entities: npt.NDArray[Any]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
        """Which entities are in a list, and with what weights."""
        theirs = self.entities[rows]
        if not len(theirs):
            return np.zeros(len(entities), bool), np.zeros(len(entities), np.uint8)
        places = np.minimum(np.searchsorted(theirs, entities), len(theirs) - 1)
        return theirs[places] == entities, self._weights[rows][places]

    def _typos(self, squeezed: str) -> Iterator[Matches]:
        if len(squeezed) < MIN_TYPO_LENGTH:
            return
        middle = len(squeezed) // 2  # a swap here changes both halves
        yield self._listed(
            f"={squeezed[: middle - 1]}{squeezed[middle]}{squeezed[middle - 1]}{squeezed[middle + 1 :]}", TYPO
        )
        keys = hashes_of(list(half_keys(squeezed)))
        starts, ends = np.searchsorted(self._halves, keys), np.searchsorted(self._halves, keys, "right")
        short = [slice(start, end) for start, end in zip(starts, ends, strict=True) if end - start <= MAX_COMPARED]
        rows = np.unique(np.concatenate([self._rows[:0], *(self._rows[each] for each in short)])).astype(np.int64)
        names = [squeeze(fold(bare_title(name))) for name in self._names.take(rows)]
        typos = [row for row, name in zip(rows.tolist(), names, strict=True) if is_typo(squeezed, name)]
        pairs = self._names.entities_of(np.array(typos, np.int64), min_share=MIN_SHARE)
        yield _matches(pairs.entity, TYPO, np.float32(1 - 1 / len(squeezed)) * pairs.prior)


def _matches(entities: npt.NDArray[Any], kind: int, strengths: npt.NDArray[np.float32]) -> Matches:
    return Matches(entities.astype(np.int32), np.full(len(entities), kind, np.int8), strengths)


def _size(rows: slice) -> int:
    return int(rows.stop - rows.start)
