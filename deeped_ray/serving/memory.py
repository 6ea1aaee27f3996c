"""What a replica's process holds, and when it looks for garbage: not in the middle of a long request.

Python frees nearly everything at once, when the last reference goes. Only objects that refer to each other in a ring wait
for its collector. A full collection looks through all that is alive: 0.1 s beside the answers to 10,000 mentions, during
which nobody is answered.
"""

import asyncio
import ctypes
import fcntl
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow

from deeped_ray.serving.config import AppArgs

PERIOD_S = 10.0
AT_LATEST_S = 120.0
"""If there is always a long request, a full collection comes after so long anyway."""
NEVER = 10**9
SWITCH_S = 0.001
"""How long a thread may hold the interpreter if others want it. By default 5 ms, and a request changes threads several times."""


COMPILING_S = 600.0


def hold_less() -> None:
    """Before the knowledge base is opened: Arrow's own allocator would keep 13 MB that `settle` can give back."""
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def compile_apart(args: AppArgs) -> None:
    """Leave what is not compiled yet on this node to a process that ends: who compiles holds 160 MB for good.

    Others wait meanwhile. If that process fails, the replica compiles, or says what is wrong with its knowledge base.
    """
    from deeped_ray.linking.compiling import kernel_folder

    with suppress(OSError, subprocess.SubprocessError):
        is_done = kernel_folder() / f"{args.model}.done"
        with open(is_done.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_done.exists():
                command = [sys.executable, "-m", "deeped_ray.serving.memory", args.model_dump_json()]
                subprocess.run(command, check=True, capture_output=True, timeout=COMPILING_S)
                is_done.touch()


def settle() -> None:
    """What is here now stays, so no collection looks at it. Full collections come only from `collect_when_idle`."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only GNU's library has it
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)


async def collect_when_idle(is_busy: Callable[[], bool], *, period_s: float = PERIOD_S) -> None:
    """Full collections while no long request is under way: there is little to look through then."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(period_s)
        if not is_busy() or time.monotonic() - last > AT_LATEST_S:
            gc.collect()
            last = time.monotonic()


if __name__ == "__main__":
    from deeped_ray.serving.service import LinkingService

    LinkingService(AppArgs.model_validate_json(sys.argv[1]))
