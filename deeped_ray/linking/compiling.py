"""Compiles functions with numba, and keeps what was compiled beside the package, for the processes that come after.

On a fresh machine many processes start at once: replicas, workers of Ray, tests. Each would compile the same for half a
minute. So one process compiles a function at a time, and the others wait for it and read what it has kept.
"""

import contextlib
import fcntl
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sums may be taken in another order. One loop must not both add up and write to an array: then the compiler makes two
    versions of it, which round differently, and chooses by where the arrays lie in memory.
    """
    return _compiled(function, fastmath={"reassoc", "contract", "arcp", "nsz"})


def compiled_exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every operation as it is written."""
    return _compiled(function, fastmath=False)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    function = inspect.unwrap(function)  # tests wrap every function in type checks
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        dispatcher: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package nor the home can be written to: compile again in each process
        plain: Callable[..., Any] = numba.njit(**options)(function)
        return plain
    compile_or_read, lock = dispatcher.compile, Path(dispatcher._cache.cache_path) / "compiling.lock"

    def in_turn(signature: Any) -> Any:
        with _held(lock):
            return compile_or_read(signature)

    dispatcher.compile = in_turn
    found: Callable[..., Any] = dispatcher
    return found


_threads = threading.RLock()
_depth = 0


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Of all processes one has it. A function that calls another compiles it meanwhile, so it may be taken again."""
    global _depth
    with _threads:
        if _depth:
            yield
            return
        lock.parent.mkdir(parents=True, exist_ok=True)
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _depth += 1
            try:
                yield
            finally:
                _depth -= 1
