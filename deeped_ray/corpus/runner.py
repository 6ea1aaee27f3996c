"""The passes of one job over a corpus, and what all of their tasks have counted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deeped_ray.corpus import passes
from deeped_ray.corpus.passes import Found
from deeped_ray.knowledge.parts import Sealed
from deeped_ray.running import tasks
from deeped_ray.running.tasks import Outcome
from deeped_ray.storage.location import Location

_SEALED_AT_ONCE = 16


class Runner:
    """`tasks.run` in one folder; remembers the most memory that a worker took."""

    def __init__(self, work: Location) -> None:
        self._work, self.peak_gib = work, 0.0
        self.sealed: dict[str, Sealed] = {}
        """Files of the part that tasks have made and sealed, by their names in it."""

    def __call__(
        self, stage: str, function: Callable[..., Found], items: Sequence[Any], *shared: Any, **options: Any
    ) -> Outcome[Found]:
        done = tasks.run(stage, function, items, *shared, work=self._work, **options)
        self.peak_gib = max(self.peak_gib, done.peak_gib)
        return done

    def seal(self, files: Mapping[str, Location]) -> None:
        """Let tasks read files of the part once more, for their checksums: no byte of them passes through the driver."""
        names = [[*files][start : start + _SEALED_AT_ONCE] for start in range(0, len(files), _SEALED_AT_ONCE)]
        lots = [[files[name] for name in lot] for lot in names]
        done = self("seal", passes.seal_files, lots, unit="lots of files")
        for lot, found in zip(names, done.results, strict=True):
            for name, checksum in zip(lot, found["checksums"], strict=True):
                self.sealed[name] = Sealed(files[name], checksum)


def counted_by(*outcomes: Outcome[Found]) -> Counter[str]:
    """What all tasks of some passes have counted."""
    total: Counter[str] = Counter()
    for found in (found for done in outcomes for found in done.results):
        total.update(found["counts"])
    return total
