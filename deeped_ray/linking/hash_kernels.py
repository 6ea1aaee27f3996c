"""Searching in long rising lists of hashes, compiled. Hashes are spread evenly, so their size nearly tells where they stand."""

import numpy as np

from deeped_ray.linking.compiling import compiled

_32 = np.uint64(32)
_0, _ALL = np.int64(0), 2.0**64
_FIRST_STEP = 8


@compiled
def place_of_hash(key, hashes):  # type: ignore[no-untyped-def]
    """Where a hash stands first, or would stand: as a binary search, but nearly all of it within one line of the cache."""
    number = np.int64(len(hashes))
    if number == 0:
        return _0
    guess = np.int64(((key >> _32) * np.uint64(number)) >> _32)
    guess += np.int64((np.float64(key) - np.float64(hashes[guess])) * (number / _ALL))
    guess = min(max(guess, _0), number - 1)
    step = _FIRST_STEP
    if hashes[guess] < key:
        low = high = guess + 1
        while high < number and hashes[high] < key:
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, number)
    else:
        low = high = guess
        while low > 0 and hashes[low - 1] >= key:
            high, low, step = low - 1, low - step, 2 * step
        low = max(low, _0)
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def rows_of_hashes(keys, hashes, rows, found) -> None:  # type: ignore[no-untyped-def]
    """The row of each hash, -1 for those that are not among them."""
    for each in range(len(keys)):
        place = place_of_hash(keys[each], hashes)
        found[each] = rows[place] if place < len(hashes) and hashes[place] == keys[each] else -1
