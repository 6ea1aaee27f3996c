"""Files entities under keys of their names, so that no name has to be compared with all others (`name_index` looks them up).

Names are the mentions of the corpus: titles, redirects and anchors. An entity is filed under all letters of a name, under
its words and initials, with a weight. A word of many entities is not read whole: its list has a head, the entities with
most links, and words that are frequent are also filed in pairs.

    names.keys.npy, names.offsets.npy          64-bit hashes of keys, in order; the list of each
    names.entities.npy, names.weights.npy      entities of a list, rising; how well each fits the key, 1 to 255
    names.halves.npy, names.halves_rows.npy    hashes of halves of names, in order; the row of each in the mention table
    names.endings.json                         endings that links exchange, most frequent first
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.name_forms import (
    ACRONYM_LENGTHS,
    LONGEST_NAME,
    LOWER_LENGTHS,
    MIN_TYPO_LENGTH,
    MOST_WORDS,
    Form,
    endings_of,
    fold,
    form_of,
    halves,
    initials_of,
    lower_initials_of,
    squeeze,
)
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.text import bare_title, mix64

HEAD = 256
"""Entities of a list that are read, at most: those with most links."""
MIN_SHARE = 0.1
"""Of a name's links must lead to an entity for the name to be the entity's."""
MIN_EXCHANGES, MAX_ENDINGS = 8, 64
MOST = 255
"""The highest weight."""
HEAD_SALT = np.uint64(0x9E3779B97F4A7C15)
"""What makes the key of a head of the key of its list."""
_BLOCK = 100_000
_Keys = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


@runtime_checkable
class Entities(Protocol):
    """What filing asks of a catalogue."""

    num_links: npt.NDArray[np.int64]
    is_person: npt.NDArray[np.bool_]

    def titles(self, entity_ids: _Ints) -> list[str]: ...


def write_name_index(folder: Path, names: MentionTable, catalogue: Entities) -> int:
    """File all names of a corpus; returns their number."""
    filed, by_half, exchanges = [], [], Counter[tuple[str, str]]()
    for first in range(0, max(len(names), 1), _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, len(names)))
        strings = [name[:LONGEST_NAME] for name in names.take(rows)]
        forms = [form_of(bare_title(name)) for name in strings]
        pairs = names.entities_of(rows, min_share=MIN_SHARE)
        filed.append(_file_block(strings, forms, pairs.place, pairs.entity, pairs.prior, catalogue.is_person))
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
    strings: Sequence[str],
    forms: Sequence[Form],
    place: _Ints,
    entity: _Ints,
    prior: npt.NDArray[np.float32],
    is_person: npt.NDArray[np.bool_],
) -> _Filed:
    """Entities under the keys of their names. `place` says which name of the block an entity has.

    Persons are not filed under initials: few are called by them, and those by links.
    """
    keys, owners, letters = [], [], []
    for number, (string, form) in enumerate(zip(strings, forms, strict=True)):
        own = [f"={form.squeezed}"] if form.squeezed else []
        if bare_title(string) != string:
            own.append(f"={squeeze(fold(string))}")
        if len(initials := initials_of(bare_title(string))) in ACRONYM_LENGTHS:
            own.append(f"i{initials}")
        if len(initials := lower_initials_of(bare_title(string))) in LOWER_LENGTHS:
            own.append(f"l{initials}")
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
    is_initials = np.array([key[0] in "il" for key in keys], bool)
    kept = ~(is_initials[which] & is_person[entity[chosen]])
    which, chosen = which[kept], chosen[kept]
    is_word = num_letters[which] > 0
    by_share = np.clip(np.round(prior[chosen] * MOST), 1, MOST)
    by_length = np.clip(MOST + 1 - num_letters[which], 1, MOST)
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
    return heads._replace(keys=heads.keys ^ HEAD_SALT)


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
