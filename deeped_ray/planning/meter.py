"""What work costs: processor time and memory of this process and of all that descend from it, such as a local Ray.

Workers come and go while a stage runs, and a process that Ray ends leaves its time to nobody: neither `resource` nor
`psutil` knows of it afterwards. So /proc is read several times a second and the last sight of every process counts;
what is missed is at most one interval of each that ended. Linux only.

Processor time is no constant either: on a machine that others use too, the same work has been seen to take twice as much
of it. So a small fixed piece of work is done every time /proc is read, and what it took tells how fast the machine was.
"""

import bz2
import contextlib
import functools
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

INTERVAL_S = 0.2
WAITS = 4
"""Times as long as a look took, at least, until the next: where the machine is busy, looks shall not be most of the work."""
_PROC = Path("/proc")
_AGENTS = ("ray::Dashboard", "ray::RuntimeEnv")  # Ray's own, named like workers; the system cuts names at 15 letters
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Cost(NamedTuple):
    """What a stretch of work has taken."""

    driver_s: float
    """Processor time of this process."""
    worker_s: float
    """Of Ray's workers."""
    ray_s: float
    """Of Ray's own processes, and of any other child: a fiftieth of a core, by the clock rather than by the work."""
    driver_gib: float
    """Most memory of this process that no file backs."""
    worker_gib: float
    """The same of the largest worker."""
    wall_s: float
    disk_mb: float
    """Most that the watched folder has held."""
    probe_s: float
    """Mean processor time of the fixed piece of work meanwhile: costs over it compare across machines and hours."""

    @property
    def core_s(self) -> float:
        """Of the work, wherever it was done."""
        return self.driver_s + self.worker_s


class _Process(NamedTuple):
    pid: int
    started: int
    parent: int
    name: str
    cpu_s: float


class Meter:
    """Measures between `with Meter() as meter` and the end of the block; `meter.cost` is there afterwards."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._last: dict[tuple[int, int], _Process] = {}
        self._memory: Counter[str] = Counter()
        self._disk = 0
        self._own_s = 0.0
        self._probes: list[float] = []
        self._ends = threading.Event()

    def __enter__(self) -> "Meter":
        self._first = {(each.pid, each.started): each.cpu_s for each in _family()}
        self._begin, self._begin_s = time.monotonic(), time.process_time()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self.cost = self.so_far()

    def so_far(self) -> Cost:
        """Since the beginning, by what was last read."""
        wall_s, driver_s = time.monotonic() - self._begin, time.process_time() - self._begin_s - self._own_s
        last = dict(self._last)
        spent = {key: each.cpu_s - self._first.get(key, 0.0) for key, each in last.items()}
        others = {key: each for key, each in last.items() if each.pid != os.getpid()}
        worker_s = sum(spent[key] for key, each in others.items() if _is_worker(each))
        ray_s = sum(spent[key] for key in others) - worker_s
        memory = {role: self._memory[role] / 2**30 for role in ("driver", "worker")}
        probe_s = sum(self._probes) / max(1, len(self._probes))
        return Cost(driver_s, worker_s, ray_s, memory["driver"], memory["worker"], wall_s, self._disk / 1e6, probe_s)

    def _watch(self) -> None:
        while True:
            ended, start = self._ends.is_set(), time.monotonic()
            for each in _family():
                self._last[each.pid, each.started] = each
                role = "driver" if each.pid == os.getpid() else "worker" if _is_worker(each) else "ray"
                self._memory[role] = max(self._memory[role], _private_bytes(each.pid))
            if self._folder:
                self._disk = max(self._disk, folder_bytes(self._folder))
            self._probes.append(probe())
            self._own_s = time.thread_time()
            if ended:  # seen once more after the end
                return
            self._ends.wait(max(INTERVAL_S, WAITS * (time.monotonic() - start)))


def _is_worker(process: _Process) -> bool:
    return process.name.startswith("ray::") and not process.name.startswith(_AGENTS)


def _family() -> list[_Process]:
    """This process and all that descend from it."""
    children: dict[int, list[_Process]] = {}
    found = []
    for each in _processes():
        if each.pid == os.getpid():
            found.append(each)
        children.setdefault(each.parent, []).append(each)
    for each in found:  # grows while it is gone through
        found += children.get(each.pid, [])
    return found


def _processes() -> Iterator[_Process]:
    for entry in os.listdir(_PROC):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # a name stands in parentheses and may itself hold some
                head, _, tail = (_PROC / entry / "stat").read_text().rpartition(")")
                fields = tail.split()
                cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
                yield _Process(int(entry), int(fields[19]), int(fields[1]), head.partition("(")[2], cpu_s)


def _private_bytes(pid: int) -> int:
    """Memory that no file backs: what another process would need again."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; one that several names lead to counts once."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(root, name), follow_symlinks=False)
                found[status.st_ino] = status.st_size
    return sum(found.values())


# -- how fast this machine is


@functools.lru_cache(maxsize=1)
def _packed() -> bytes:
    rng = random.Random(0)
    syllables = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(2_000)]
    text = " ".join(f"[[{word}|{word}]]" if rng.random() < 0.05 else word for word in rng.choices(words, k=8_000))
    return bz2.compress(text.encode())


def probe() -> float:
    """Processor time of this thread for a fixed piece of work that resembles ours: bzip2, expressions, dictionaries."""
    packed = _packed()
    start = time.thread_time()
    plain = re.sub(r"\[\[(?:[^|\]]*\|)?([^\]]*)\]\]", r"\1", bz2.decompress(packed).decode())
    counts = Counter(re.findall(r"\w+", plain))
    sorted(counts, key=lambda word: (-counts[word], word))
    return time.thread_time() - start
