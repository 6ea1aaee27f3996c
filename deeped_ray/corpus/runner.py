"""The passes of one job over a corpus, and what all of their tasks have counted."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from deeped_ray.corpus.passes import Found
from deeped_ray.running import tasks
from deeped_ray.running.tasks import Outcome
from deeped_ray.storage.location import Location


class Runner:
    """`tasks.run` in one folder; remembers the most memory that a worker took."""

    def __init__(self, work: Location) -> None:
        self._work, self.peak_gib = work, 0.0

    def __call__(
        self, stage: str, function: Callable[..., Found], items: Sequence[Any], *shared: Any, **options: Any
    ) -> Outcome[Found]:
        done = tasks.run(stage, function, items, *shared, work=self._work, **options)
        self.peak_gib = max(self.peak_gib, done.peak_gib)
        return done


def counted_by(*outcomes: Outcome[Found]) -> Counter[str]:
    """What all tasks of some passes have counted."""
    total: Counter[str] = Counter()
    for found in (found for done in outcomes for found in done.results):
        total.update(found["counts"])
    return total
