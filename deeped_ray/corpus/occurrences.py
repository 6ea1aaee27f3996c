"""Where mentions stand in running text, and how often one that stands there is a link.

    mentions.units.npy, .unit_rows.npy      hashes of the mentions as sequences of units, in order, and their rows
    mentions.beginnings.npy                 bits, set where a mention begins with units of such a hash
    mentions.pages.npy, .linked_pages.npy   per mention, pages in whose text it stands, and those where it is a link

A sequence of units (`text.unit_spans`) is a mention if the text between its ends is, after `normalize_mention`. Hashes of
longer and longer sequences are looked up for all places of a text at once, and only where what was read so far begins a
mention, so that the time is linear in the text. The end of a line is a unit that no mention has: nothing is found across
it. Nor is anything across the end of a sentence, unless the mention itself has the full stop, as `St. Louis` does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.corpus.pages import Keys, Lot, read_lots
from deeped_ray.corpus.teaching import Choice
from deeped_ray.storage.arrays import concatenate_arrays, in_ranges, joining, read_array
from deeped_ray.storage.location import Location
from deeped_ray.text import Bools, Hashes, Ints, hash_tokens, unit_spans

MAX_UNITS = 24
"""Longer mentions are titles of lists and the like: they are not looked for in texts. In Japanese, a unit is a character."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SPACE = np.uint64(0xD1B54A32D192ED03)
_BITS_PER_BEGINNING = 16
_COUNTS = ("pages", "linked_pages")


# -- the mentions as sequences of units


def later_hashes(hashes: Hashes, is_spaced: Bools) -> Hashes:
    """What units add to a sequence that they do not begin."""
    return hashes + is_spaced * SPACE


def hash_mentions(mentions: Sequence[str]) -> tuple[Hashes, Ints, Hashes]:
    """Hash and place of every mention that is not too long, and the hashes of all their beginnings."""
    units = unit_spans("\n".join(mentions))
    is_border = units.hashes == hash_tokens(["\n"])[0]
    place = np.cumsum(is_border)
    firsts = np.flatnonzero(np.append(True, is_border)[:-1] & ~is_border) if len(is_border) else np.zeros(0, np.int64)
    lengths = np.bincount(place[~is_border], minlength=len(mentions))[place[firsts]]
    firsts, lengths = firsts[lengths <= MAX_UNITS], lengths[lengths <= MAX_UNITS]
    later = later_hashes(units.hashes, units.is_spaced)
    keys = units.hashes[firsts]
    whole, rows, beginnings = [], [], []
    for length in range(1, MAX_UNITS + 1):
        beginnings.append(keys)
        is_whole = lengths == length
        whole.append(keys[is_whole])
        rows.append(place[firsts[is_whole]])
        firsts, lengths, keys = firsts[~is_whole], lengths[~is_whole], keys[~is_whole]
        keys = keys * MULTIPLIER + later[firsts + length]
    return np.concatenate(whole), np.concatenate(rows), np.concatenate(beginnings)


def write_sequences(prefix: Path, mentions: Sequence[str]) -> None:
    """The sequences of one partition's mentions, as files that begin with `prefix`."""
    for name, array in zip(("units", "unit_rows", "beginnings"), hash_mentions(mentions), strict=True):
        np.save(f"{prefix}.{name}.npy", array)


def join_sequences(pieces: Sequence[Path], piece_sizes: Sequence[int], folder: Path) -> None:
    """All sequences in hash order. The driver holds the bits, and a range of the sequences at a time."""
    firsts = np.cumsum([0, *piece_sizes])
    with joining(folder, "mentions.units", "mentions.unit_rows") as add:
        for piece, _, hashes, own in in_ranges(pieces, "units", "unit_rows"):
            rows = own + firsts[piece]
            order = np.lexsort((rows, hashes))
            add(hashes[order], rows[order].astype(np.int32))
    beginnings = [f"{piece}.beginnings.npy" for piece in pieces]
    num_bits = 1 << max(10, (_BITS_PER_BEGINNING * sum(len(read_array(file)) for file in beginnings)).bit_length() - 1)
    packed = np.zeros(num_bits // 8, dtype=np.uint8)
    for file in beginnings:
        bit = _bit_of(np.asarray(read_array(file), np.uint64), num_bits)
        np.bitwise_or.at(packed, bit >> 3, np.uint8(1) << (bit & 7).astype(np.uint8))
    np.save(folder / "mentions.beginnings.npy", packed)


def _bit_of(keys: Hashes, num_bits: int) -> Ints:
    # the top bits: those at the bottom of a product with an odd number depend on few of its factors' bits
    return (keys >> _shift(num_bits)).astype(np.int64)


def _shift(num_bits: int) -> np.uint64:
    return np.uint64(64 - (num_bits.bit_length() - 1))


class Occurrences(NamedTuple):
    """Units [first, first + length) are the mention of this row."""

    first: Ints
    length: Ints
    row: Ints


class SequenceIndex:
    """Finds all mentions in a text, overlapping ones included."""

    FILES = ("mentions.units.npy", "mentions.unit_rows.npy", "mentions.beginnings.npy")

    def __init__(self, folder: Path) -> None:
        self._hashes, self._rows, self._bits = (
            np.asarray(np.load(folder / name, mmap_mode="r", allow_pickle=False)) for name in self.FILES
        )

    @property
    def tables(self) -> tuple[Hashes, npt.NDArray[np.int32], npt.NDArray[np.uint8], np.uint64]:
        """Sequences and their rows, the bits of beginnings, and by how much a hash is moved to be the place of its bit."""
        return self._hashes, self._rows, self._bits, _shift(8 * len(self._bits))

    def find(self, first: Hashes, later: Hashes) -> Occurrences:
        """By the hashes of a text's units: as the first of a sequence, and as a later one."""
        places = np.arange(len(first))
        keys = first
        found = []
        for length in range(1, MAX_UNITS + 1):
            bit = _bit_of(keys, 8 * len(self._bits))
            is_beginning = (self._bits[bit >> 3] >> (bit & 7).astype(np.uint8)) & 1 == 1
            places, keys = places[is_beginning], keys[is_beginning]
            if not len(places):
                break
            distinct, inverse = np.unique(keys, return_inverse=True)  # sorted, they are found several times faster
            row = np.minimum(np.searchsorted(self._hashes, distinct), len(self._hashes) - 1)[inverse]
            is_hit = self._hashes[row] == keys
            hits = places[is_hit]
            found.append(Occurrences(hits, np.full(len(hits), length), self._rows[row[is_hit]].astype(np.int64)))
            goes_on = places + length < len(first)
            places = places[goes_on]
            keys = keys[goes_on] * MULTIPLIER + later[places + length]
        columns = zip(*found, strict=True) if found else [(np.zeros(0, np.int64),)] * 3
        return Occurrences(*(np.concatenate(column) for column in columns))


# -- counting


def rows(shard: Location, index: SequenceIndex, taught: Choice, pages: Keys | None = None) -> pa.Table:
    """The mentions that stand in one shard's articles, or in some of them: in how many, and in how many as a link.

    Pages are counted and not places, since Wikipedia links a name where a page has it first and no more. Articles that
    teach are left out.
    """
    keys = np.concatenate([np.zeros(0, np.int64), *(_places(lot, index, taught) for lot in read_lots(shard, pages))])
    distinct, inverse = np.unique(keys >> 1, return_inverse=True)
    return pa.table(
        {
            "mention": distinct,
            "pages": np.bincount(inverse, minlength=len(distinct)).astype(np.int64),
            "linked_pages": np.bincount(inverse, keys & 1, len(distinct)).astype(np.int64),
        }
    )


def _places(lot: Lot, index: SequenceIndex, taught: Choice) -> Ints:
    """One number for every mention and article it stands in: the row of the mention, and a last bit if it is a link there."""
    units = unit_spans(lot.text)
    found = index.find(units.hashes, later_hashes(units.hashes, units.is_spaced))
    starts, ends = units.starts[found.first], units.ends[found.first + found.length - 1]
    page = np.searchsorted(lot.borders, starts, side="right") - 1
    is_link = np.isin((starts << 32) | ends, (lot.link_start << 32) | lot.link_end)
    # row, page, and last whether it is a link: of a page's places, one that is a link comes last
    is_counted = lot.is_article & ~taught.are_chosen(lot.titles)
    keys = np.unique(((found.row << 32) | (page << 1) | is_link)[is_counted[page]])
    keys = keys[np.append(keys[1:] >> 1 != keys[:-1] >> 1, True)] if len(keys) else keys
    return (keys >> 32 << 1) | (keys & 1)


def reduce(table: pa.Table, mentions: range, prefix: Path) -> None:
    """Add up the counts of these mentions, as files that begin with `prefix`."""
    rows = table["mention"].to_numpy() - mentions.start
    for name in _COUNTS:
        counts = np.bincount(rows, table[name].to_numpy(), len(mentions))
        np.save(f"{prefix}.{name}.npy", counts.astype(np.int32))


def join(pieces: Sequence[Path], folder: Path) -> None:
    for name in _COUNTS:
        concatenate_arrays([Path(f"{piece}.{name}.npy") for piece in pieces], folder / f"mentions.{name}.npy")
