"""Named points at which a test can stop a process and kill it: `reached("parse/3")`.

Faults are injected where they are meant to happen, not raced against a poll. A test sets DEEPED_FAULTS to a folder and
arms a point by an empty file of its name there. The first process to reach the point takes the file, leaves one with
its process id instead, and waits until it is killed or released. Without DEEPED_FAULTS a point costs one look into the
environment.
"""

import os
import time
from pathlib import Path

_FOLDER = "DEEPED_FAULTS"


def reached(point: str) -> None:
    folder = os.environ.get(_FOLDER)
    if folder:
        _hold(Path(folder), point.replace("/", "."))


def _hold(folder: Path, name: str) -> None:
    held = folder / f"{name}.held"
    try:
        (folder / name).rename(held)  # of several processes, one takes it
    except FileNotFoundError:
        return
    held.write_text(str(os.getpid()))
    while held.exists():
        time.sleep(0.01)


class Faults:
    """The test's side: `faults.arm("parse/3")`, then `pid = faults.wait("parse/3")`, then kill or `release`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        return {_FOLDER: str(self.folder)}

    def arm(self, *points: str) -> None:
        for point in points:
            self._held(point).unlink(missing_ok=True)  # of a process that was killed there
            (self.folder / point.replace("/", ".")).touch()

    def is_held(self, point: str) -> bool:
        held = self._held(point)
        return held.exists() and held.read_text() != ""

    def wait(self, point: str, *, timeout_s: float = 120) -> int:
        """The id of the process that is held there."""
        deadline = time.monotonic() + timeout_s
        while not self.is_held(point):
            if time.monotonic() > deadline:
                raise TimeoutError(f"No process reached {point} within {timeout_s:g} s.")
            time.sleep(0.01)
        return int(self._held(point).read_text())

    def release(self, point: str) -> None:
        self._held(point).unlink()

    def clear(self) -> None:
        """No point is armed any more, and no process held."""
        for file in self.folder.iterdir():
            file.unlink()

    def _held(self, point: str) -> Path:
        return self.folder / f"{point.replace('/', '.')}.held"
