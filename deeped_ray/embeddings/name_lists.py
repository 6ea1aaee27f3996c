"""Sorts what names are filed under without holding it in memory: in buckets on disk, each of which is sorted by itself.

    lists       rows of key and entity, by key; of several names with a key, the one that fits best
    frequent    rows of words that many entities have, by entity: every two of an entity's words become a key
    pairs       those keys
    heads       the most linked entities of long lists, under keys of their own

A bucket of keys is a range of their leading bits, so sorted buckets follow each other as sorted rows do. The number of
buckets changes no byte of the result.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.embeddings.name_forms import MOST_WORDS
from deeped_ray.storage.arrays import concatenate_arrays
from deeped_ray.text import mix64

HEAD = 256
"""Entities of a list that are read, at most: those with most links."""
HEAD_SALT = np.uint64(0x9E3779B97F4A7C15)
"""What makes the key of a head of the key of its list."""
ROWS_A_BUCKET = 2**21
"""Sorting them takes some 100 bytes for each."""
_ROWS_A_NAME = 6  # keys of a name times its entities, with pairs and heads: rounded up from the English sample
_ROW = np.dtype([("key", "<u8"), ("entity", "<i4"), ("weight", "u1"), ("is_word", "?")])
Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


class Filed(NamedTuple):
    """Rows: this entity stands under this key."""

    keys: Keys
    entities: npt.NDArray[np.int32]
    weights: npt.NDArray[np.uint8]
    is_word: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, blocks: "Sequence[Filed]") -> "Filed":
        keys, entities, weights, is_word = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        return cls(keys, entities, weights, is_word)

    def take(self, rows: Ints) -> "Filed":
        return Filed(self.keys[rows], self.entities[rows], self.weights[rows], self.is_word[rows])


class Buckets:
    """Rows on disk, in the order in which they were added to each bucket."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir()
        self._folder, self.count = folder, count

    def add(self, filed: Filed, numbers: Ints) -> None:
        """`numbers` says which bucket each row belongs to."""
        order = np.argsort(numbers, kind="stable")
        rows = np.empty(len(order), _ROW)
        for name, column in zip(_ROW.names or (), filed, strict=True):
            rows[name] = np.asarray(column)[order]
        borders = np.searchsorted(numbers[order], np.arange(self.count + 1))
        for number in np.flatnonzero(np.diff(borders)).tolist():
            with open(self._folder / str(number), "ab") as file:
                rows[borders[number] : borders[number + 1]].tofile(file)

    def add_by_key(self, filed: Filed) -> None:
        self.add(filed, (filed.keys >> np.uint64(65 - self.count.bit_length())).astype(np.int64))

    def take(self, number: int) -> Filed:
        """What is in a bucket, which is empty afterwards."""
        file = self._folder / str(number)
        rows = np.fromfile(file, _ROW) if file.exists() else np.empty(0, _ROW)
        file.unlink(missing_ok=True)
        return Filed(*(np.ascontiguousarray(rows[name]) for name in _ROW.names or ()))


def num_buckets(num_names: int) -> int:
    """A power of two."""
    wanted: int = max(2, num_names * _ROWS_A_NAME // ROWS_A_BUCKET)
    return 1 << (wanted - 1).bit_length()


def write_lists(folder: Path, work: Path, lists: Buckets, links: Ints) -> None:
    """From rows in any order to the lists that are looked up."""
    numbers = range(lists.count)
    frequent, pairs, heads = (Buckets(work / name, lists.count) for name in ("frequent", "pairs", "heads"))
    for number in numbers:
        best = _best_of_each(lists.take(number))
        lists.add_by_key(best)
        words = best.take(np.flatnonzero(best.is_word & (_sizes(best.keys) > HEAD)))
        frequent.add(words, words.entities.astype(np.int64) * lists.count // max(1, len(links)))
    for number in numbers:
        pairs.add_by_key(_pairs(frequent.take(number)))
    for number in numbers:
        merged = Filed.joined([lists.take(number), pairs.take(number)])
        lists.add_by_key(merged)
        heads.add_by_key(_heads(merged, links))
    _join(folder, work, (_best_of_each(Filed.joined([lists.take(each), heads.take(each)])) for each in numbers))


def write_halves(folder: Path, work: Path, halves: Buckets) -> None:
    """Names by the hashes of their halves; `entities` are rows of the mention table here."""
    for number in range(halves.count):
        filed = halves.take(number)
        order = np.lexsort((filed.entities, filed.keys))
        np.save(work / f"halves.{number}.npy", filed.keys[order])
        np.save(work / f"halves_rows.{number}.npy", filed.entities[order])
    for column in ("halves", "halves_rows"):
        _concatenate(folder, work, column, halves.count)


def _join(folder: Path, work: Path, buckets: Iterable[Filed]) -> None:
    num_rows = count = 0
    for lists in buckets:
        is_first = np.append(True, lists.keys[1:] != lists.keys[:-1])[: len(lists.keys)]
        firsts = np.flatnonzero(is_first)
        np.save(work / f"keys.{count}.npy", lists.keys[firsts])
        np.save(work / f"offsets.{count}.npy", firsts.astype(np.int64) + num_rows)
        np.save(work / f"entities.{count}.npy", lists.entities)
        np.save(work / f"weights.{count}.npy", lists.weights)
        num_rows, count = num_rows + len(lists.keys), count + 1
    np.save(work / f"offsets.{count}.npy", np.array([num_rows], np.int64))
    for column, num_pieces in (("keys", count), ("offsets", count + 1), ("entities", count), ("weights", count)):
        _concatenate(folder, work, column, num_pieces)


def _concatenate(folder: Path, work: Path, column: str, count: int) -> None:
    pieces = [work / f"{column}.{number}.npy" for number in range(count)]
    concatenate_arrays(pieces, folder / f"names.{column}.npy")


# -- rows of one bucket


def _best_of_each(filed: Filed) -> Filed:
    """By key and entity; of several names with a key, the one that fits best."""
    order = np.lexsort((-filed.weights.astype(np.int16), filed.entities, filed.keys))
    keys, entities = filed.keys[order], filed.entities[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (keys[1:] != keys[:-1]) | (entities[1:] != entities[:-1])
    return filed.take(order[is_new])


def _sizes(keys: Keys) -> Ints:
    """Of the list that each row is in; rows come by key."""
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sizes: Ints = counts[inverse]
    return sizes


def _pairs(frequent: Filed) -> Filed:
    """Entities under every two of their frequent words; of an entity with very many, under most of these pairs."""
    frequent = frequent.take(np.argsort(frequent.entities, kind="stable"))
    rows = np.arange(len(frequent.keys))
    blocks = [frequent.take(rows[:0])]
    for distance in range(1, MOST_WORDS):
        one, other = rows[:-distance], rows[distance:]
        is_same = frequent.entities[one] == frequent.entities[other]
        one, other = one[is_same], other[is_same]
        blocks.append(
            Filed(
                pair_keys(frequent.keys[one], frequent.keys[other]),
                frequent.entities[one],
                np.minimum(frequent.weights[one], frequent.weights[other]),
                np.zeros(len(one), bool),
            )
        )
    return Filed.joined(blocks)


def _heads(lists: Filed, links: Ints) -> Filed:
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


def pair_keys(one: Keys, other: Keys) -> Keys:
    return mix64(np.minimum(one, other) * np.uint64(0xD6E8FEB86659FD93) + np.maximum(one, other))
