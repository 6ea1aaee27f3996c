"""Measured coefficients, and what they say at sizes that were not measured.

`coefficients.json` is written by `benchmarks/scale.py --write`: for each quantity of a stage a line, fixed + unit * size,
through what was measured at several sizes.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

COEFFICIENTS = Path(__file__).with_name("coefficients.json")
MIN_SPREAD = 0.1
DRIFT_PER_DOUBLING = 0.1
"""`benchmarks/scale.py` calls a cost flat that changes by less than 20% over two doublings of the size."""
BAND = (
    "Bands: what the fits leave unexplained, at least 10%, and 10% more for each doubling beyond what was measured,"
    " or, of ingest, what larger wikis have shown."
)
Sizes = Mapping[str, float | int]


class Estimate(NamedTuple):
    """A value, and the factor by which the truth may lie above or below it."""

    value: float | int
    factor: float | int = 1.0

    @property
    def low(self) -> float:
        return self.value / self.factor

    @property
    def high(self) -> float:
        return self.value * self.factor

    def times(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.factor)


NOTHING = Estimate(0.0)


def total(*estimates: Estimate) -> Estimate:
    """Errors are taken to go the same way: what one stage has underestimated the next has too."""
    value = sum(each.value for each in estimates)
    return Estimate(value, sum(each.high for each in estimates) / value if value else 1.0)


class Fit(NamedTuple):
    """A measured line: fixed + sum of unit * size."""

    fixed: float
    units: dict[str, float]
    spread: float
    """Largest relative residual."""
    largest: dict[str, float]
    """The largest of each size that was measured, where it is a question how far that reaches."""
    drift: float = DRIFT_PER_DOUBLING
    """For each doubling beyond it. Less where a line has met a wiki much larger than those it was fitted to."""

    def at(self, sizes: Sizes) -> Estimate:
        value = self.fixed + sum(unit * sizes[name] for name, unit in self.units.items())
        beyond = max([1.0, *(sizes[name] / largest for name, largest in self.largest.items())])
        factor = (1 + max(self.spread, MIN_SPREAD)) * (1 + self.drift) ** math.log2(beyond)
        return Estimate(value, factor)


class Coefficients:
    """What was measured, by stage and quantity."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.made: dict[str, Any] = data["made"]
        self.dimension: int = data["made"]["dimension"]
        self.bytes_per_word: float = data["bytes_per_word"]
        self._vocabulary, self._stages = data["vocabulary"], data["stages"]

    def at(self, stage: str, quantity: str, sizes: Sizes) -> Estimate:
        return Fit(**self._stages[stage][quantity]).at(sizes)

    def seconds(self, stage: str, quantity: str, sizes: Sizes, speed: float) -> Estimate:
        return self.at(stage, quantity, sizes).times(1 / speed)

    def gb(self, stage: str, quantity: str, sizes: Sizes) -> Estimate:
        return self.at(stage, quantity, sizes).times(1e-3)

    def vocabulary_of(self, words: float) -> float:
        """Words that occur often enough to count grow as a power of the text (Heaps' law)."""
        power: float = (words / self._vocabulary["words"]) ** self._vocabulary["exponent"]
        return power * float(self._vocabulary["size"])


@lru_cache(maxsize=1)
def measured() -> Coefficients:
    return Coefficients(json.loads(COEFFICIENTS.read_text()))
