"""Finds the entities that a name may mean although it is not written as the mention table has it.

Names are the mentions of the corpus: titles, redirects and anchors. Case, diacritics and punctuation aside (`fold`), a name
is found if it

    equals      has the same letters in the same order: `JK Rowling`, `J. K. Rowling`
    words       has all words of the mention, in any order: `Lebed`, `Alexander Lebed`
    initials    spells the mention with its initials: `AFP`, `Agence France-Presse`
    inflection  differs in an ending, as the dump's own links do: `Kurdish`, `Kurds`
    typo        differs in one letter, or two neighbours are swapped: `Barrack Obama`
    part        is a part of the mention: `NPR news`, `NPR`

No name is compared with all others: every entity is filed under a few keys, with a weight. A look-up reads the lists of
some keys. A word of many entities is not read whole: its list has a head, the entities with most links, and words that are
frequent are also filed in pairs.

    names.keys.npy, names.offsets.npy          64-bit hashes of keys, in order; the list of each
    names.entities.npy, names.weights.npy      entities of a list, rising; how well each fits the key, 1 to 255
    names.endings.json                         endings that links exchange, most frequent first
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.name_forms import (
    ACRONYM_LENGTHS,
    LONGEST_NAME,
    MIN_STEM,
    MIN_TYPO_LENGTH,
    MOST_WORDS,
    Form,
    acronym_of,
    endings_of,
    fold,
    form_of,
    half_keys,
    halves,
    initials_of,
    is_filed,
    is_typo,
    squeeze,
)
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64, hashes_of
from deeped_ray.text import STOP_WORDS, bare_title, mix64

MatchKind = Literal["equals", "words", "initials", "inflection", "typo", "part"]
KINDS: tuple[MatchKind, ...] = get_args(MatchKind)
EQUALS, WORDS, INITIALS, INFLECTION, TYPO, PART = range(len(KINDS))
HEAD = 256
"""Entities of a list that are read, at most: those with most links."""
MIN_SHARE = 0.1
"""Of a name's links must lead to an entity for the name to be the entity's."""
MAX_COMPARED = 100
"""Names that share half of their letters with more others than this are not compared with them."""
REMEMBERED = 8192
"""Look-ups whose answers are kept."""
MIN_EXCHANGES, MAX_ENDINGS = 8, 64
_BLOCK = 100_000
_MOST = 255
_HEAD_SALT = np.uint64(0x9E3779B97F4A7C15)
_Keys = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]
_Entities = npt.NDArray[np.int32]


# -- filing


@runtime_checkable
class Entities(Protocol):
    """What filing asks of a catalogue."""

    num_links: npt.NDArray[np.int64]

    def titles(self, entity_ids: _Ints) -> list[str]: ...


def write_name_index(folder: Path, names: MentionTable, catalogue: Entities) -> int:
    """File all names of a corpus; returns their number."""
    filed, by_half, exchanges = [], [], Counter[tuple[str, str]]()
    for first in range(0, max(len(names), 1), _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, len(names)))
        strings = [name[:LONGEST_NAME] for name in names.take(rows)]
        forms = [form_of(bare_title(name)) for name in strings]
        pairs = names.entities_of(rows, min_share=MIN_SHARE)
        filed.append(_file_block(strings, forms, pairs.place, pairs.entity, pairs.prior))
        by_half.append(_file_halves(forms, rows))
        exchanges.update(_exchanges(forms, pairs.place, catalogue.titles(pairs.entity)))
    _write_lists(folder, _Filed.joined(filed), catalogue.num_links)
    _write_halves(folder, by_half)
    endings = [pair for pair, count in exchanges.most_common(MAX_ENDINGS) if count >= MIN_EXCHANGES]
    (folder / "names.endings.json").write_text(json.dumps(endings))
    return len(names)


class _Filed(NamedTuple):
    keys: _Keys
    entities: npt.NDArray[np.int32]
    weights: npt.NDArray[np.uint8]
    is_word: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, blocks: "Sequence[_Filed]") -> "_Filed":
        keys, entities, weights, is_word = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        return cls(keys, entities, weights, is_word)

    def take(self, rows: _Ints) -> "_Filed":
        return _Filed(self.keys[rows], self.entities[rows], self.weights[rows], self.is_word[rows])


def _file_block(
    strings: Sequence[str], forms: Sequence[Form], place: _Ints, entity: _Ints, prior: npt.NDArray[np.float32]
) -> _Filed:
    """Entities under the keys of their names. `place` says which name of the block an entity has."""
    keys, owners, letters = [], [], []
    for number, (string, form) in enumerate(zip(strings, forms, strict=True)):
        own = [f"={form.squeezed}"] if form.squeezed else []
        if bare_title(string) != string:
            own.append(f"={squeeze(fold(string))}")
        if len(initials := initials_of(bare_title(string))) in ACRONYM_LENGTHS:
            own.append(f"i{initials}")
        keys += own
        keys += [f"w{word}" for word in form.words]
        letters += [0] * len(own) + [form.num_letters] * len(form.words)
        owners += [number] * (len(own) + len(form.words))
    hashes, owner, num_letters = hashes_of(keys), np.array(owners, np.int64), np.array(letters, np.int64)
    # every key of a name goes to every entity of it
    counts = np.bincount(place, minlength=len(strings))
    starts = np.append(0, np.cumsum(counts))[:-1]
    times = counts[owner]
    which = np.repeat(np.arange(len(owner)), times)
    within = np.arange(len(which)) - np.repeat(np.append(0, np.cumsum(times))[:-1], times)
    chosen = starts[owner[which]] + within
    is_word = num_letters[which] > 0
    by_share = np.clip(np.round(prior[chosen] * _MOST), 1, _MOST)
    by_length = np.clip(_MOST + 1 - num_letters[which], 1, _MOST)
    weights = np.where(is_word, by_length, by_share).astype(np.uint8)
    return _Filed(hashes[which], entity[chosen].astype(np.int32), weights, is_word)


def _write_lists(folder: Path, filed: _Filed, links: npt.NDArray[np.int64]) -> None:
    lists = _best_of_each(filed)
    lists = _Filed.joined([lists, _pairs(lists)])
    lists = _best_of_each(_Filed.joined([lists, _heads(lists, links)]))
    is_first = np.append(True, lists.keys[1:] != lists.keys[:-1]) if len(lists.keys) else np.zeros(0, bool)
    firsts = np.flatnonzero(is_first)
    np.save(folder / "names.keys.npy", lists.keys[firsts])
    np.save(folder / "names.offsets.npy", np.append(firsts, len(lists.keys)).astype(np.int64))
    np.save(folder / "names.entities.npy", lists.entities)
    np.save(folder / "names.weights.npy", lists.weights)


def _best_of_each(filed: _Filed) -> _Filed:
    """By key and entity; of several names with a key, the one that fits best."""
    order = np.lexsort((-filed.weights.astype(np.int16), filed.entities, filed.keys))
    keys, entities = filed.keys[order], filed.entities[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (keys[1:] != keys[:-1]) | (entities[1:] != entities[:-1])
    return filed.take(order[is_new])


def _sizes(keys: _Keys) -> _Ints:
    """Of the list that each row is in; rows come by key."""
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sizes: _Ints = counts[inverse]
    return sizes


def _pairs(lists: _Filed) -> _Filed:
    """Entities under every two of their frequent words; of an entity with very many, under most of these pairs."""
    frequent = np.flatnonzero(lists.is_word & (_sizes(lists.keys) > HEAD))
    frequent = frequent[np.argsort(lists.entities[frequent], kind="stable")]
    blocks = [lists.take(frequent[:0])]
    for distance in range(1, MOST_WORDS):
        one, other = frequent[:-distance], frequent[distance:]
        is_same = lists.entities[one] == lists.entities[other]
        one, other = one[is_same], other[is_same]
        blocks.append(
            _Filed(
                pair_keys(lists.keys[one], lists.keys[other]),
                lists.entities[one],
                np.minimum(lists.weights[one], lists.weights[other]),
                np.zeros(len(one), bool),
            )
        )
    return _Filed.joined(blocks)


def _heads(lists: _Filed, links: npt.NDArray[np.int64]) -> _Filed:
    """The most linked entities of long lists, as lists of their own."""
    order = np.argsort(lists.keys, kind="stable")
    lists = lists.take(order)
    long = np.flatnonzero(_sizes(lists.keys) > HEAD)
    order = long[np.lexsort((lists.entities[long], -links[lists.entities[long]], lists.keys[long]))]
    keys = lists.keys[order]
    starts = np.searchsorted(keys, keys)
    kept = order[np.arange(len(order)) - starts < HEAD]
    heads = lists.take(kept)
    return heads._replace(keys=heads.keys ^ _HEAD_SALT)


def pair_keys(one: _Keys, other: _Keys) -> _Keys:
    return mix64(np.minimum(one, other) * np.uint64(0xD6E8FEB86659FD93) + np.maximum(one, other))


# -- endings


def _exchanges(forms: Sequence[Form], place: _Ints, titles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(ending of a link's text, ending of its title) for single words that begin alike: `Kurdish`, `Kurds`."""
    for number, title in zip(place.tolist(), titles, strict=True):
        form = forms[number]
        if len(form.words) != 1 or form.words[0] != form.squeezed:
            continue
        other = form_of(bare_title(title))
        if len(other.words) == 1 and (pair := endings_of(form.squeezed, other.squeezed)):
            yield pair


# -- typing errors


def _file_halves(forms: Sequence[Form], rows: _Ints) -> tuple[_Keys, _Ints]:
    """Names under both of their halves: a typing error leaves one of them as it was."""
    long = [number for number, form in enumerate(forms) if len(form.squeezed) >= MIN_TYPO_LENGTH]
    keys = [key for number in long for key in halves(forms[number].squeezed)]
    return hashes_of(keys), np.repeat(rows[long], 2)


def _write_halves(folder: Path, blocks: Sequence[tuple[_Keys, _Ints]]) -> None:
    keys, rows = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    order = np.lexsort((rows, keys))
    np.save(folder / "names.halves.npy", keys[order])
    np.save(folder / "names.halves_rows.npy", rows[order].astype(np.int32))


# -- looking up


class Matches(NamedTuple):
    """Entities whose names match a surface: an entity may match in several ways."""

    entities: _Entities
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
        self.words_of = lru_cache(maxsize=REMEMBERED)(self._words)
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
            known = np.array([each.entity_id for each in self._names.candidates(surface)], np.int32)
            found.append(self._with_words(form, known))
        if acronym := acronym_of(surface):
            found.append(self._listed(f"i{acronym}", INITIALS))
        if len(form.words) == 1:
            found += [self._listed(f"={other}", INFLECTION) for other in self._inflected(form.squeezed)]
        if not len(found[0].entities):
            found += [*self._typos(form.squeezed), *self._parts(surface)]
        entities, kinds, strengths = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return Matches(entities, kinds, strengths)

    def _parts(self, surface: str) -> Iterator[Matches]:
        """Names that the surface contains, the longest at each place."""
        words = fold(surface).split()[:MOST_WORDS]
        total = sum(map(len, words))
        for length in range(len(words) - 1, 0, -1):
            for first in range(len(words) - length + 1):
                part = words[first : first + length]
                if not any(is_filed(word) and word not in STOP_WORDS for word in part):
                    continue
                found = self._listed(f"={''.join(part)}", PART)
                yield found._replace(strengths=found.strengths * np.float32(sum(map(len, part)) / total))

    def _inflected(self, word: str) -> Iterator[str]:
        for ending, other in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM:
                yield word[: len(word) - len(ending)] + other

    def _listed(self, key: str, kind: int) -> Matches:
        rows = self._read(np.uint64(hash64(key)))
        if not _size(rows):  # most keys are nobody's
            return _NOTHING
        return _matches(self.entities[rows], kind, self._weights[rows].astype(np.float32) / np.float32(_MOST))

    def _read(self, key: np.uint64) -> slice:
        """Where the list of a key stands, or its head if it is long."""
        rows = self._list(key)
        return rows if _size(rows) <= HEAD else self._list(key ^ _HEAD_SALT)

    def _list(self, key: np.uint64) -> slice:
        place = int(self._keys.searchsorted(key))
        if place == len(self._keys) or self._keys[place] != key:
            return slice(0, 0)
        return slice(int(self._offsets[place]), int(self._offsets[place + 1]))

    def _with_words(self, form: Form, known: _Entities) -> Matches:
        """Entities that have all words in their names, in one name or in several; `known` need not be in a head."""
        keys = hashes_of([f"w{word}" for word in form.words])
        lists = sorted((self._list(key) for key in keys), key=_size)
        if not _size(lists[0]):
            return _NOTHING
        if _size(lists[0]) <= HEAD:
            entities = self.entities[lists[0]]
        else:
            rarest = keys[np.argsort([_size(self._list(key)) for key in keys], kind="stable")]
            key = pair_keys(rarest[:1], rarest[1:2])[0] if len(keys) > 1 else keys[0]
            entities = np.union1d(self.entities[self._read(key)], known).astype(np.int32)
        weights = np.full(len(entities), _MOST, np.uint8)
        for rows in lists:
            is_there, theirs = self._in_list(rows, entities)
            entities, weights = entities[is_there], np.minimum(weights, theirs)[is_there]
        letters = np.maximum(_MOST + 1 - weights.astype(np.int64), form.num_letters)
        return _matches(entities, WORDS, (form.num_letters / letters).astype(np.float32))

    def _words(self, surface: str) -> NamedWords:
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
