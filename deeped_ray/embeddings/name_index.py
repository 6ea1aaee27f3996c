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
from deeped_ray.knowledge.strings import hashes_of
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


_EMPTY = slice(0, 0)


class NameIndex:
    """Finds entities by what their names look like."""

    def __init__(self, index: Part, corpus: Part, *, names: MentionTable | None = None) -> None:
        """`names` is the mention table, if it is open already: what it has looked up is remembered there."""
        # plain arrays over the maps: np.memmap makes every access dearer
        self._keys, self._offsets, self.entities, self._weights, self._halves, self._rows = (
            np.asarray(index.array(f"names.{name}"))
            for name in ("keys", "offsets", "entities", "weights", "halves", "halves_rows")
        )
        self._endings: list[tuple[str, str]] = [
            (ending, other) for ending, other in json.loads((index.path / "names.endings.json").read_text())
        ]
        self._names = MentionTable(corpus) if names is None else names
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._find)  # the same names come again and again
        self._word_lists = lru_cache(maxsize=REMEMBERED)(self._find_word_lists)
        self.form = lru_cache(maxsize=REMEMBERED)(form_of)

    @classmethod
    def open(cls, kb: KnowledgeBase, *, names: MentionTable | None = None) -> "NameIndex":
        return cls(kb.open("index"), kb.open("corpus"), names=names)

    def find(self, surface: str) -> Matches:
        """The entities that a surface may name, by kind of match."""
        return self._remembered(surface) if len(surface) <= LONGEST_NAME else _NOTHING

    def _find(self, surface: str) -> Matches:
        form = self.form(surface)
        if not form.squeezed:
            return _NOTHING
        acronym = acronym_of(surface)
        inflected = [*self._inflected(form.squeezed)] if len(form.words) == 1 else []
        initials = [f"i{acronym}", f"l{acronym}"] if acronym else []
        equal, *others = self._lists([f"={form.squeezed}", *initials, *(f"={other}" for other in inflected)])
        found = [self._listed(equal, EQUALS)]
        if form.words:
            found.append(self._with_words(form, self._names.candidates(surface).entity))
        for place, rows in enumerate(others):
            matches = self._listed(rows, INITIALS if place < len(initials) else INFLECTION)
            is_lower = place == 1 and len(initials) > 0
            found.append(matches._replace(strengths=matches.strengths * LOWER_SHARE) if is_lower else matches)
        if not len(found[0].entities):
            found += [*self._typos(form.squeezed), *self._parts(surface)]
        found = [matches for matches in found if len(matches.entities)]
        if not found:
            return _NOTHING
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
        for name, rows in zip(names, self._lists([f"={name}" for name in names]), strict=True):
            if _size(rows):
                found = self._listed(rows, PART)
                yield found._replace(strengths=found.strengths * np.float32(len(name) / total))

    def _inflected(self, word: str) -> Iterator[str]:
        for ending, other in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM:
                yield word[: len(word) - len(ending)] + other

    def _listed(self, rows: slice, kind: int) -> Matches:
        if not _size(rows):  # most keys are nobody's
            return _NOTHING
        return _matches(self.entities[rows], kind, self._weights[rows].astype(np.float32) / np.float32(MOST))

    def _lists(self, keys: Sequence[str]) -> list[slice]:
        """Where the list of each key stands, or its head if it is long."""
        hashes = hashes_of(keys)
        whole = self._whole_lists(hashes)
        return [
            rows if _size(rows) <= name_lists.HEAD else self._whole_lists(key[None] ^ HEAD_SALT)[0]
            for rows, key in zip(whole, hashes, strict=True)
        ]

    def _whole_lists(self, hashes: npt.NDArray[np.uint64]) -> list[slice]:
        places = self._keys.searchsorted(hashes)
        if not len(self._keys):
            return [_EMPTY] * len(hashes)
        is_there = self._keys[np.minimum(places, len(self._keys) - 1)] == hashes
        starts, ends = self._offsets[places[is_there]].tolist(), self._offsets[places[is_there] + 1].tolist()
        found = map(slice, starts, ends)
        return [next(found) if each else _EMPTY for each in is_there.tolist()]

    def _with_words(self, form: Form, known: npt.NDArray[Any]) -> Matches:
        """Entities that have all words in their names, in one name or in several; `known` need not be in a head."""
        lists = sorted(self._word_lists(form.words), key=lambda pair: _size(pair[1]))
        rarest = lists[0][1]
        if not _size(rarest):
            return _NOTHING
        if _size(rarest) <= name_lists.HEAD:
            entities = self.entities[rarest]
        else:
            keys = hashes_of([f"w{word}" for word, _ in lists[:2]])
            key = pair_keys(keys[:1], keys[1:]) if len(keys) > 1 else keys
            (rows,) = self._whole_lists(key)
            rows = rows if _size(rows) <= name_lists.HEAD else self._whole_lists(key ^ HEAD_SALT)[0]
            entities = np.union1d(self.entities[rows], known).astype(np.int32)
        weights = np.full(len(entities), MOST, np.uint8)
        for _, rows in lists:
            is_there, theirs = self._in_list(rows, entities)
            entities, weights = entities[is_there], np.minimum(weights, theirs)[is_there]
        letters = np.maximum(MOST + 1 - weights.astype(np.int64), form.num_letters)
        return _matches(entities, WORDS, (form.num_letters / letters).astype(np.float32))

    def _find_word_lists(self, words: tuple[str, ...]) -> list[tuple[str, slice]]:
        return [*zip(words, self._whole_lists(hashes_of([f"w{word}" for word in words])), strict=True)]

    def words_of(self, surface: str) -> NamedWords:
        form = self.form(surface[:LONGEST_NAME])
        rows = [(rows.start, rows.stop, len(word)) for word, rows in self._word_lists(form.words)]
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
        swapped = f"={squeezed[: middle - 1]}{squeezed[middle]}{squeezed[middle - 1]}{squeezed[middle + 1 :]}"
        yield self._listed(self._lists([swapped])[0], TYPO)
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
