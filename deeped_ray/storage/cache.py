"""What a node has fetched from storage, kept in one folder for all its processes, and temporary folders beside it."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CACHE_DAYS = 7
"""A node keeps what it has fetched for this long after it was last asked for."""


def cache_folder() -> Path:
    """Where this node keeps what it has fetched; the same for all its processes."""
    return Path(os.environ.get("DEEPED_CACHE", "~/.cache/deeped-ray")).expanduser()


@contextlib.contextmanager
def caching(folder: Path) -> Iterator[None]:
    """One process of the node at a time fills a folder of its cache; folders that nobody asks for are forgotten."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    os.utime(folder)
    oldest = time.time() - CACHE_DAYS * 86400
    for other in [*folder.parent.iterdir(), *(cache_folder() / "temporary").glob(".*")]:
        with contextlib.suppress(FileNotFoundError):  # another process may be at it too
            if other.is_dir() and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)  # who has mapped what is in it keeps that


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """On the disk that holds the cache, or below `parent`: not in /tmp, which is often small and in memory."""
    parent = parent or cache_folder() / "temporary"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=parent) as folder:
        yield Path(folder)
