"""Compiles functions with numba, and keeps what was compiled for all processes of this machine.

It is kept by its source: in `kernels/` of the node's cache, one folder for each state of the modules that have compiled
functions. So every checkout, wheel and working copy of a job with the same kernels reads the same files, and a changed
kernel is never mixed with others that call it: numba itself looks at the file of one function only.

On a fresh machine many processes start at once: replicas, workers of Ray, tests. Each would compile the same for half a
minute. So one process compiles a function at a time, and the others wait for it and read what it has kept.
"""

import contextlib
import fcntl
import functools
import hashlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import parse_bitcode
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from deeped_ray.storage.cache import cache_folder, caching

_IMPORT = b"deeped_ray.linking.compiling import"


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
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", **options)(function)
    try:
        dispatcher._cache = _KeptBySource(function)  # type: ignore[no-untyped-call]
    except RuntimeError:  # neither the cache nor the package can be written to: compile again in each process
        plain: Callable[..., Any] = dispatcher
        return plain
    compile_or_read, lock = dispatcher.compile, Path(dispatcher._cache.cache_path) / "compiling.lock"

    def in_turn(signature: Any) -> Any:
        with _held(lock):
            return compile_or_read(signature)

    dispatcher.compile = in_turn
    found: Callable[..., Any] = dispatcher
    return found


# -- where it is kept


class _BySource(_CacheLocator):
    """numba's way to ask for the folder of a function."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._line, self._folder = function.__code__.co_firstlineno, folder

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_BySource | None":
        if not Path(py_file).is_file():  # what was typed in, say: numba has other places for that
            return None
        try:
            return cls(py_func, _folder_of(Path(py_file).parent))
        except OSError:  # a home that cannot be written to
            return None

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


@functools.cache
def _folder_of(package: Path) -> Path:
    """One for what the package's modules with compiled functions have in them now."""
    digest = hashlib.sha256()
    for module in sorted(package.glob("*.py")):
        if _IMPORT in (content := module.read_bytes()):
            digest.update(module.name.encode() + b"\0" + content + b"\0")
    own = os.environ.get("NUMBA_CACHE_DIR")
    folder = (Path(own) if own else cache_folder() / "kernels") / digest.hexdigest()[:16]
    with caching(folder):
        folder.mkdir(exist_ok=True)
        (folder / "compiling.lock").touch()
    return folder


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_BySource, *CompileResultCacheImpl._locator_classes]  # noqa: RUF012

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Without what only a function that calls this one needs to be compiled: 15 MB for all that linking uses.

        numba keeps it as LLVM's objects. Here it stays bytes, which are read if such a function comes.
        """
        found = super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]
        (_, _, (_, code)), library = payload[0], found.library
        library._shared_module = None
        library._get_module_for_linking = functools.partial(parse_bitcode, code)
        return found


class _KeptBySource(FunctionCache):
    _impl_class = _Impl


def kernel_folder() -> Path:
    """Where what linking compiles is kept."""
    return _folder_of(Path(__file__).parent)


# -- one process at a time

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
