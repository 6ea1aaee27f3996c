"""Before ingest begins: whether this machine has the memory and the disk that the plan asks for, at the low ends of its bands."""

import math
import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from deeped_ray.corpus.wikidump import find_dumps
from deeped_ray.planning.plan import make_plan
from deeped_ray.planning.workload import GB, GIB, Cluster, Workload
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

_USUAL = Workload(pages=1)


class Room(NamedTuple):
    """What there is."""

    memory_gib: float
    disk_gb: float
    """Infinite where a knowledge base is no folder."""


def room_for(kb: Location) -> Room:
    """Memory of this machine, and disk for a knowledge base: free, or taken by a run of it that goes on."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if kb.path is None:
        return Room(memory_gib, math.inf)
    there = next(folder for folder in (kb.path.absolute(), *kb.path.absolute().parents) if folder.exists())
    unfinished = sum((kb / "runs").sizes().values()) if (kb / "runs").exists() else 0
    return Room(memory_gib, (shutil.disk_usage(there).free + unfinished) / GB)


def require_room(kb: Location, dumps: Sequence[str], room: Room | None = None) -> None:
    """Raise if ingest of these dumps cannot be done here. Remote dumps count too; entities from files do not."""
    dump_bytes = sum(dump.num_bytes() for dump in find_dumps(dumps)) if dumps else 0
    bytes_a_page = _USUAL.dump_bytes
    if dump_bytes < bytes_a_page:
        return
    work = Workload(pages=math.ceil(dump_bytes / bytes_a_page), dump_gb=dump_bytes / GB)
    ingest = make_plan(work, Cluster()).stages[0]
    found = room or room_for(kb)
    disk_gb = ingest.disk_gb.low + ingest.work_gb.low
    if found.disk_gb < disk_gb:
        raise DeepEdError(
            f"{kb} has {found.disk_gb:.1f} GB of disk left, and ingest of {dump_bytes / GB:.1f} GB of dump takes at least"
            f" {disk_gb:.1f}. Make room, or give another --kb. `deeped plan --dump-gb` says more."
        )
    if ingest.driver_gib and found.memory_gib < ingest.driver_gib.low:
        raise DeepEdError(
            f"This machine has {found.memory_gib:.1f} GiB of memory, and the driver of ingest takes at least"
            f" {ingest.driver_gib.low:.1f} for {dump_bytes / GB:.1f} GB of dump. Run the job on a larger head."
        )
