"""The spans of a text that may be mentions, compiled: what `spans` looks for, unit by unit.

A span is told by its length and by the letters it leaves out; what is found at a unit fills a small table of these.
"""

import numpy as np

from deeped_ray.corpus.occurrences import MULTIPLIER, SPACE
from deeped_ray.linking.compiling import compiled_exactly
from deeped_ray.linking.hash_kernels import place_of_hash

_0, _3, _7 = (np.uint64(number) for number in (0, 3, 7))
_OWN, _HEADLINE, _LOWER = range(3)
FIRST, LENGTH, TRIMMED, ROWS = range(4)
"""Rows of what is found; then those of the mention table in three forms."""


@compiled_exactly
def find_spans(  # type: ignore[no-untyped-def]
    hashes, prefixed, flags, case, runs, blocks, index, pages, settings, found
):
    """Fills the columns of `found`, by place and length; returns how many spans there are, also if there is room for fewer.

    `case` is whether units are written as in headlines, would be small in usual case, and have case at all.
    `blocks` are further spans: place * (max_units + 1) + length, rising.
    """
    own, lower, _ = hashes
    is_spaced, is_word, is_number, is_capital, is_lower, is_flat = flags
    is_headline = case[0]
    run, place_in_run, run_size = runs
    max_units, max_run, max_prefix, least_linked, nothing = settings
    n = len(own)
    num_letters, num_marked = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for i in range(n):
        is_letters = is_word[i] and not is_number[i]
        num_letters[i + 1] = num_letters[i] + is_letters
        num_marked[i + 1] = num_marked[i] + (is_letters and not is_lower[i])
    is_there = np.zeros((max_units + 1, max_prefix + 1), np.bool_)
    rows = np.full((3, max_units + 1, max_prefix + 1), -1)
    number = block = 0
    for i in range(n):
        longest = _match(own[i], i, own, is_spaced, index, max_units, is_there, rows[_OWN], 0)
        for count in range(len(prefixed)):
            if prefixed[count, i] != nothing:
                end = _match(prefixed[count, i], i, own, is_spaced, index, max_units, is_there, rows[_OWN], count + 1)
                longest = max(longest, end)
        if is_headline[i]:
            end = _match_headline(i, hashes, is_spaced, case, index, max_units, is_there, rows[_HEADLINE])
            longest = max(longest, end)
        if is_capital[i]:
            end = _match(lower[i], i, lower, is_spaced, index, max_units, is_there, rows[_LOWER], 0)
            longest = max(longest, end)
        if run[i] >= 0:
            last = i
            for count in range(min(max_run, run_size[i] - place_in_run[i])):
                while run[last] != run[i] or place_in_run[last] != place_in_run[i] + count:
                    last += 1
                if last - i < max_units:
                    is_there[last - i + 1, 0] = True
                    longest = max(longest, last - i + 1)
        while block < len(blocks) and blocks[block] // (max_units + 1) == i:
            is_there[blocks[block] % (max_units + 1), 0] = True
            longest = max(longest, blocks[block] % (max_units + 1))
            block += 1
        for length in range(1, longest + 1):
            for trimmed in range(max_prefix + 1):
                if not is_there[length, trimmed]:
                    continue
                as_written, in_headline = rows[_OWN, length, trimmed], rows[_HEADLINE, length, trimmed]
                is_marked = num_marked[i + length] > num_marked[i] or (is_flat[i] and in_headline >= 0)
                is_linked = as_written >= 0 and _is_linked(as_written, pages, least_linked)
                has_letters = is_word[i] and num_letters[i + length] > num_letters[i]
                if has_letters and (is_marked or is_linked):
                    if number < found.shape[1]:
                        found[FIRST, number], found[LENGTH, number], found[TRIMMED, number] = i, length, trimmed
                        for form in range(3):
                            found[ROWS + form, number] = rows[form, length, trimmed]
                    number += 1
                is_there[length, trimmed] = False
                for form in range(3):
                    rows[form, length, trimmed] = -1
    return number


@compiled_exactly
def _is_linked(row, pages, least_linked):  # type: ignore[no-untyped-def]
    return pages[1][row] + 0.2 >= least_linked * (pages[0][row] + 2)


@compiled_exactly
def _row_of(key, index):  # type: ignore[no-untyped-def]
    """Of a sequence of units: its row in the mention table, -1 if it is none but may begin one, -2 if it begins none."""
    known, rows, bits, shift = index
    bit = key >> shift
    if not (bits[bit >> _3] >> np.uint8(bit & _7)) & 1:
        return -2
    place = place_of_hash(key, known)
    return np.int64(rows[place]) if place < len(known) and known[place] == key else -1


@compiled_exactly
def _match(key, i, later, is_spaced, index, max_units, is_there, rows, trimmed):  # type: ignore[no-untyped-def]
    """Notes the mentions that begin with this key at unit i; returns the length of the longest."""
    longest = 0
    for length in range(1, max_units + 1):
        row = _row_of(key, index)
        if row >= 0:
            is_there[length, trimmed], rows[length, trimmed], longest = True, row, length
        end = i + length
        if row == -2 or end >= len(later):
            break
        key = key * MULTIPLIER + later[end] + (SPACE if is_spaced[end] else _0)
    return longest


@compiled_exactly
def _match_headline(i, hashes, is_spaced, case, index, max_units, is_there, rows):  # type: ignore[no-untyped-def]
    """The same in usual case: BANK OF ENGLAND as Bank of England. What stands so in the text was found before."""
    own, lower, title = hashes
    is_headline, is_small, is_cased = case
    key, longest, is_changed = title[i], 0, title[i] != own[i]
    for length in range(1, max_units + 1):
        row = _row_of(key, index)
        if row >= 0 and is_changed:
            is_there[length, 0], rows[length, 0], longest = True, row, length
        end = i + length
        if row == -2 or end >= len(own):
            break
        if is_headline[end]:
            unit = lower[end] if is_small[end] else title[end]
        elif is_cased[end]:
            break  # usual case already
        else:
            unit = own[end]
        is_changed = is_changed or unit != own[end]
        key = key * MULTIPLIER + unit + (SPACE if is_spaced[end] else _0)
    return longest
