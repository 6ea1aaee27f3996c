"""Numbers and the slots of a table that belong to them, for rows that are worth keeping: words, entities, names.

Slots are only ever given, never taken back, so that threads may look for them without a lock. When all are given, the owner
begins with a new table. One thread at a time may add. It fills the rows of the table first, and then says where they are.
"""

import numpy as np
import numpy.typing as npt

from deeped_ray.linking.compiling import compiled

Ints = npt.NDArray[np.int64]
_SPREAD, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Slots:
    """Which slot each number has. `given` is how many there are."""

    def __init__(self, size: int) -> None:
        self.size, self.given = size, 0
        # at least half of the places stay open, so that a search is short
        self._places = np.zeros(2 ** (2 * size).bit_length(), np.int64)
        # no number is -1: who sees a place before its owner finds nothing, and asks again with the lock
        self._owners = np.full(size, -1)

    def find(self, numbers: Ints) -> tuple[Ints, int]:
        """The slot of every number, -1 for those that have none, and how many these are."""
        slots = np.empty(len(numbers), np.int64)
        return slots, find_slots(numbers, self._places, self._owners, slots)

    def add(self, numbers: Ints) -> None:
        """Gives the next slots to distinct numbers that have none."""
        give_slots(numbers, self.given, self._places, self._owners)
        self.given += len(numbers)


@compiled
def place_in(number, places, owners):  # type: ignore[no-untyped-def]
    """Where a number stands in a table of open places, or where it would stand. A place holds the slot + 1, or 0."""
    mask = len(places) - 1
    place = np.int64((np.uint64(number) * _SPREAD) >> _32) & mask
    while places[place] and owners[places[place] - 1] != number:
        place = (place + 1) & mask
    return place


@compiled
def find_slots(numbers, places, owners, slots):  # type: ignore[no-untyped-def]
    num_missing = 0
    for each in range(len(numbers)):
        slots[each] = places[place_in(numbers[each], places, owners)] - 1
        num_missing += slots[each] < 0
    return num_missing


@compiled
def give_slots(numbers, first, places, owners) -> None:  # type: ignore[no-untyped-def]
    for each in range(len(numbers)):
        place = place_in(numbers[each], places, owners)
        owners[first + each] = numbers[each]  # before the place: whoever reads the place reads the owner too
        places[place] = first + each + 1
