"""Where mentions stand in running text, and how often one that stands there is a link.

    mentions.units.npy, .unit_rows.npy      hashes of the mentions as sequences of units, in order, and their rows
    mentions.beginnings.npy                 bits, set where a mention begins with units of such a hash
    mentions.pages.npy, .linked_pages.npy   per mention, pages in whose text it stands, and those where it is a link

A unit is a word or a single other character, and knows whether white space stands before it: a sequence of units is a
mention if the text between its ends is, after `normalize_mention`. Hashes of longer and longer sequences are looked up
for all places of a text at once, and only where what was read so far begins a mention, so that the time is linear in
the text. Units and hashes come from numpy too, a character at a time and no string anywhere. The end of a line is a unit that no mention has: nothing is found across it. Nor is anything across the end of
a sentence, unless the mention itself has the full stop, as `St. Louis` does.
"""

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.corpus.pages import PageText, read_texts
from deeped_ray.corpus.shuffle import gather
from deeped_ray.storage.location import Location

MAX_UNITS = 16
"""Longer mentions are titles of lists and the like: they are not looked for in texts."""
_GAP, _WORD, _SINGLE, _MARK = range(4)
_BASE = np.uint64(0xA0761D6478BD642F)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SPACE = np.uint64(0xD1B54A32D192ED03)
_BITS_PER_BEGINNING = 16
_LOT_CHARACTERS = 2**20

Hashes = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


# -- units


class Units(NamedTuple):
    """The units of a text: their places, and whether white space stands before each."""

    starts: _Ints
    ends: _Ints
    is_spaced: npt.NDArray[np.bool_]
    hashes: Hashes


def units_of(text: str) -> Units:
    """As `(\\w[\\w\\u0300-\\u036f]*|[^\\w\\s]|LINE END)` would find them, for all of a text at once."""
    codes = _codes_of(text)
    kinds = _kinds()[codes]
    if (kinds == _MARK).any():
        # combining marks are no word characters: what is not in NFC would fall apart at them
        places = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(kinds))))
        kinds = np.where(kinds != _MARK, kinds, np.where(kinds[places] == _WORD, _WORD, _SINGLE))
    is_word = np.concatenate([[False], kinds == _WORD, [False]])
    is_single = kinds == _SINGLE
    starts = np.flatnonzero(is_single | (is_word[1:-1] & ~is_word[:-2]))
    ends = np.flatnonzero(is_single | (is_word[1:-1] & ~is_word[2:])) + 1
    is_spaced = np.ones(len(starts), dtype=bool)
    is_spaced[1:] = starts[1:] > ends[:-1]
    return Units(starts, ends, is_spaced, _hash_stretches(codes, starts, ends))


def hashes_of_units(strings: Sequence[str]) -> Hashes:
    """Hashes of units that are written in another way than in the text, or not in NFC there."""
    ends = np.cumsum(np.fromiter(map(len, strings), dtype=np.int64, count=len(strings)))
    return _hash_stretches(_codes_of("".join(strings)), np.append(0, ends)[:-1], ends)


def later_hashes(hashes: Hashes, is_spaced: npt.NDArray[np.bool_]) -> Hashes:
    """What units add to a sequence that they do not begin."""
    return hashes + is_spaced * _SPACE


def _codes_of(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@functools.cache
def _kinds() -> npt.NDArray[np.uint8]:
    """What every character is to a unit."""
    characters = np.arange(sys.maxunicode + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.full(len(characters), _SINGLE, dtype=np.uint8)
    for kind, pattern in (
        (_WORD, r"\w+"),
        (_GAP, r"\s+"),
        (_SINGLE, r"[\n\r\v\f\x85\u2028\u2029]+"),
        (_MARK, r"[\u0300-\u036f]+"),
    ):
        for run in re.finditer(pattern, characters):
            kinds[run.start() : run.end()] = kind
    return kinds


def _hash_stretches(codes: npt.NDArray[np.uint32], starts: _Ints, ends: _Ints) -> Hashes:
    """sum over characters c_k of a stretch: mixed(c_k) * _BASE ** k, modulo 2 ** 64, mixed again.

    The sums of stretches are differences of running sums over the text, and _BASE, being odd, has an inverse.
    """
    powers, inverses = _powers(1 << len(codes).bit_length())
    running = np.append(np.uint64(0), np.cumsum(_mix(codes.astype(np.uint64) + _SPACE) * powers[: len(codes)]))
    return _mix((running[ends] - running[starts]) * inverses[starts])


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Powers of _BASE and of its inverse."""
    inverse = pow(int(_BASE), -1, 2**64)
    bases = (np.full(count, base, dtype=np.uint64) for base in (int(_BASE), inverse))
    up, down = (np.append(np.uint64(1), np.cumprod(base[1:])) for base in bases)
    return up, down


def _mix(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# -- the mentions as sequences of units


def hash_mentions(mentions: Sequence[str]) -> tuple[Hashes, _Ints, Hashes]:
    """Hash and place of every mention that is not too long, and the hashes of all their beginnings."""
    units = units_of("\n".join(mentions))
    is_border = units.hashes == hashes_of_units(["\n"])[0]
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
        keys = keys * _MULTIPLIER + later[firsts + length]
    return np.concatenate(whole), np.concatenate(rows), np.concatenate(beginnings)


def write_pieces(prefix: str, mentions: Sequence[str]) -> None:
    """Task: the sequences of one partition's mentions, as files that begin with `prefix`."""
    for name, array in zip(("units", "unit_rows", "beginnings"), hash_mentions(mentions), strict=True):
        np.save(f"{prefix}.{name}.npy", array)


def join_pieces(prefixes: Sequence[str], row_borders: Sequence[int], folder: Path) -> None:
    """All sequences in hash order. The driver holds two numbers per mention, and the bits."""

    def pieces_of(name: str) -> list[npt.NDArray[Any]]:
        return [np.load(f"{prefix}.{name}.npy", mmap_mode="r") for prefix in prefixes]

    hashes = np.concatenate(pieces_of("units"))
    rows = np.concatenate([rows + first for rows, first in zip(pieces_of("unit_rows"), row_borders, strict=False)])
    order = np.lexsort((rows, hashes))
    np.save(folder / "mentions.units.npy", hashes[order])
    np.save(folder / "mentions.unit_rows.npy", rows[order].astype(np.int32))
    beginnings = pieces_of("beginnings")
    num_bits = 1 << max(10, (_BITS_PER_BEGINNING * sum(map(len, beginnings))).bit_length() - 1)
    packed = np.zeros(num_bits // 8, dtype=np.uint8)
    for keys in beginnings:
        bit = _bit_of(np.asarray(keys, np.uint64), num_bits)
        np.bitwise_or.at(packed, bit >> 3, np.uint8(1) << (bit & 7).astype(np.uint8))
    np.save(folder / "mentions.beginnings.npy", packed)


def _bit_of(keys: Hashes, num_bits: int) -> _Ints:
    # the top bits: those at the bottom of a product with an odd number depend on few of its factors' bits
    return (keys >> np.uint64(64 - (num_bits.bit_length() - 1))).astype(np.int64)


class Occurrences(NamedTuple):
    """Units [first, first + length) are the mention of this row."""

    first: _Ints
    length: _Ints
    row: _Ints


class SequenceIndex:
    """Finds all mentions in a text, overlapping ones included."""

    FILES = ("mentions.units.npy", "mentions.unit_rows.npy", "mentions.beginnings.npy")

    def __init__(self, folder: Path) -> None:
        self._hashes, self._rows, self._bits = (
            np.asarray(np.load(folder / name, mmap_mode="r", allow_pickle=False)) for name in self.FILES
        )

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
            keys = keys[goes_on] * _MULTIPLIER + later[places + length]
        columns = zip(*found, strict=True) if found else [(np.zeros(0, np.int64),)] * 3
        return Occurrences(*(np.concatenate(column) for column in columns))


# -- counting


def count_shard(shard: Location, index: SequenceIndex) -> pa.Table:
    """The mentions that stand in one shard's articles: in how many, and in how many as a link.

    Pages are counted and not places, since Wikipedia links a name where a page has it first and no more.
    """
    rows, is_linked = [], []
    for lot in _lots(read_texts(shard)):
        units = units_of("\n".join(lot.texts))
        found = index.find(units.hashes, later_hashes(units.hashes, units.is_spaced))
        starts, ends = units.starts[found.first], units.ends[found.first + found.length - 1]
        page = np.searchsorted(lot.borders, starts, side="right")
        # row, page, and last whether it is a link: of a page's places, one that is a link comes last
        keys = (found.row << 32) | (page << 1) | np.isin((starts << 32) | ends, lot.links)
        keys = np.unique(keys)
        keys = keys[np.append(keys[1:] >> 1 != keys[:-1] >> 1, True)] if len(keys) else keys
        rows.append(keys >> 32)
        is_linked.append(keys & 1)
    row, linked = (np.concatenate(column) if column else np.zeros(0, np.int64) for column in (rows, is_linked))
    distinct, inverse = np.unique(row, return_inverse=True)
    return pa.table(
        {
            "mention": distinct,
            "pages": np.bincount(inverse, minlength=len(distinct)).astype(np.int64),
            "linked_pages": np.bincount(inverse, linked, len(distinct)).astype(np.int64),
        }
    )


class _Lot(NamedTuple):
    texts: list[str]
    borders: _Ints
    """Where the pages after the first begin in the joined text."""
    links: _Ints
    """Start and end of every link there, in one number."""


def _lots(pages: Iterable[PageText]) -> Iterator[_Lot]:
    """Pages by the lot: enough for numpy to be fast, and few enough to be held."""
    texts: list[str] = []
    borders: list[int] = []
    links: list[_Ints] = []
    for page in pages:
        start = borders[-1] if borders else 0
        texts.append(page.text)
        borders.append(start + len(page.text) + 1)
        links.append(((page.link_starts + start) << 32) | (page.link_ends + start))
        if borders[-1] >= _LOT_CHARACTERS:
            yield _Lot(texts, np.array(borders), np.concatenate(links))
            texts, borders, links = [], [], []
    if texts:
        yield _Lot(texts, np.array(borders), np.concatenate(links))


def reduce_counts(files: Sequence[Location], partition: int, first_row: int, last_row: int, prefix: str) -> None:
    """Task: add up the counts of mentions [first, last), as files that begin with `prefix`."""
    table = gather(files, partition)
    rows = table["mention"].to_numpy() - first_row
    for name in ("pages", "linked_pages"):
        counts = np.bincount(rows, table[name].to_numpy(), last_row - first_row)
        np.save(f"{prefix}.{name}.npy", counts.astype(np.int32))
