"""When a replica's process looks for garbage: not in the middle of a long request.

Python frees nearly everything at once, when the last reference goes. Only objects that refer to each other in a ring wait
for its collector. A full collection looks through all that is alive: 0.1 s beside the answers to 10,000 mentions, during
which nobody is answered.
"""

import asyncio
import gc
import time
from collections.abc import Callable

PERIOD_S = 10.0
AT_LATEST_S = 120.0
"""If there is always a long request, a full collection comes after so long anyway."""
NEVER = 10**9
SWITCH_S = 0.001
"""How long a thread may hold the interpreter if others want it. By default 5 ms, and a request changes threads several times."""


def settle() -> None:
    """What is here now stays, so no collection looks at it. Full collections come only from `collect_when_idle`."""
    gc.collect()
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
