"""Words of a text, compiled: no Python object for a word whose look-up is remembered.

Look-ups are remembered in a table of 64-bit entries that does not grow. An entry holds the upper 40 bits of the hash of a
word, and the word's row. Entries are read and written whole, so that threads may share the table without a lock.

    | 40 bits of the hash | row + 2 |      0 if there is none

The lowest bits of the hash choose four places that stand together: with one, two words of a text would often push each other
out, again and again.
"""

import numpy as np

from deeped_ray.linking.compiling import compiled
from deeped_ray.text import (
    FIRST_UNSPACED_KIND,
    HAN_KIND,
    HAN_PIECE,
    HASH_BASE,
    HASH_OFFSET,
    MARK_KIND,
    SOUTH_EAST_KIND,
    SOUTH_EAST_PIECE,
    WORD_KIND,
)

NO_ROW, UNKNOWN = -1, -2
MOST_ROWS = 2**24 - 3
WAYS, _LAST_BITS = 4, np.uint64(62)
_ROW_BITS = np.uint64(2**24 - 1)
_ONE, _ZERO, _27, _30, _31 = (np.uint64(number) for number in (1, 0, 27, 30, 31))
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_CAPITALS, _ASCII = (65, 90), 128
_SPACE, _FIRST_SPACE, _LAST_SPACE, _FIRST_SEPARATOR = 32, 9, 13, 28


@compiled
def mix(value):  # type: ignore[no-untyped-def]
    """`text.mix64`."""
    value = (value ^ (value >> _30)) * _FIRST
    value = (value ^ (value >> _27)) * _SECOND
    return value ^ (value >> _31)


@compiled
def find_words(codes, kinds, table, starts, ends, hashes, rows):  # type: ignore[no-untyped-def]
    """The words of `text.tokenize` with their hashes and rows, UNKNOWN where nothing is remembered; returns their number."""
    number, at = 0, 0
    while at < len(codes):
        kind = kinds[codes[at]]
        if kind != WORD_KIND and kind < FIRST_UNSPACED_KIND:
            at += 1
            continue
        most = HAN_PIECE if kind == HAN_KIND else SOUTH_EAST_PIECE if kind == SOUTH_EAST_KIND else len(codes)
        total, power, start = _ZERO, _ONE, at
        while at < len(codes) and at - start < most:
            own = kinds[codes[at]]
            if own != kind and (own != MARK_KIND or kind != WORD_KIND):
                break
            total += mix(np.uint64(codes[at]) + HASH_OFFSET) * power
            power *= HASH_BASE
            at += 1
        found = mix(total)
        first, row = _first_place(found, table), np.int64(UNKNOWN)
        for place in range(first, first + WAYS):
            if table[place] != _ZERO and (table[place] | _ROW_BITS) == (found | _ROW_BITS):
                row = np.int64(table[place] & _ROW_BITS) - 2
        rows[number] = row
        starts[number], ends[number], hashes[number] = start, at, found
        number += 1
    return number


@compiled
def _first_place(found, table):  # type: ignore[no-untyped-def]
    return np.int64(found & np.uint64(len(table) - WAYS))


@compiled
def remember(table, found, rows) -> None:  # type: ignore[no-untyped-def]
    """Rows are NO_ROW for words that have none. Where all places are taken, the newcomer's hash says which it gets."""
    for each in range(len(found)):
        if rows[each] > MOST_ROWS:
            continue
        first = _first_place(found[each], table)
        place = first
        while place < first + WAYS and table[place] != _ZERO:
            place += 1
        if place == first + WAYS:
            place = first + np.int64(found[each] >> _LAST_BITS)
        table[place] = (found[each] & ~_ROW_BITS) | np.uint64(rows[each] + 2)


@compiled
def fold_words(codes, longest, hashes, odd):  # type: ignore[no-untyped-def]
    """Hashes of the words of `name_forms.fold`, stretch by stretch between white space; returns how many, and how many are odd.

    Odd stretches have other letters than ASCII's, or are longer than `longest`: they are left to Python, by start and end.
    """
    number = num_odd = at = 0
    while at < len(codes):
        if _is_space(codes[at]):
            at += 1
            continue
        start, before, is_odd = at, number, False
        total, power = _ZERO, _ONE
        while at < len(codes) and not _is_space(codes[at]):
            code = codes[at]
            at += 1
            if _CAPITALS[0] <= code <= _CAPITALS[1]:
                code += np.uint32(32)
            if 97 <= code <= 122 or 48 <= code <= 57:
                total += mix(np.uint64(code) + HASH_OFFSET) * power
                power *= HASH_BASE
            elif _is_left_out(code):
                continue
            elif code >= _ASCII:
                is_odd = True
            elif power != _ONE:
                hashes[number] = mix(total)
                number += 1
                total, power = _ZERO, _ONE
        if power != _ONE:
            hashes[number] = mix(total)
            number += 1
        if is_odd or at - start > longest:
            number = before
            odd[num_odd, 0], odd[num_odd, 1] = start, at
            num_odd += 1
    return number, num_odd


@compiled
def name_words(codes, ends, bare_ends, stop_words, rows, row_ends) -> None:  # type: ignore[no-untyped-def]
    """`title_evidence.words_of_name` of names in ASCII, one after the other. `row_ends` says where the rows of each end."""
    number = at = 0
    for name in range(len(ends)):
        first, bare_end = number, at + bare_ends[name]
        while at < ends[name]:
            total, power, letters, start = _ZERO, _ONE, 0, at
            while at < ends[name]:
                code = codes[at]
                at += 1
                if _CAPITALS[0] <= code <= _CAPITALS[1]:
                    code += np.uint32(32)
                if 97 <= code <= 122 or 48 <= code <= 57:
                    total += mix(np.uint64(code) + HASH_OFFSET) * power
                    power *= HASH_BASE
                    letters += 1
                elif not _is_left_out(code):
                    break
            if letters == 0:
                continue
            word, is_first = np.int64(mix(total)), start < bare_end
            for before in range(first, number):
                is_first = is_first and rows[before, 0] != word
            rows[number, 0], rows[number, 1], rows[number, 2] = word, letters, letters if is_first else 0
            place = np.searchsorted(stop_words, word)
            rows[number, 3] = place < len(stop_words) and stop_words[place] == word
            number += 1
        row_ends[name] = number


@compiled
def _is_space(code):  # type: ignore[no-untyped-def]
    """As `str.split` sees ASCII; other spaces make a stretch odd."""
    return code == _SPACE or _FIRST_SPACE <= code <= _LAST_SPACE or _FIRST_SEPARATOR <= code < _SPACE


@compiled
def _is_left_out(code):  # type: ignore[no-untyped-def]
    """Apostrophes, quotes and full stops join what stands beside them."""
    return code in (0x27, 0x60, 0x2E, 0x2019, 0x2018, 0x02BB)
