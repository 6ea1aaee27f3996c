"""Files that may be compressed: told by their first bytes, never by their names."""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from deeped_ray.types import DeepEdError

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a missing, damaged or cut compressed file can raise."""


def first_bytes(path: Path, count: int) -> bytes:
    try:
        with io.FileIO(path) as handle:
            return handle.read(count) or b""
    except OSError as error:
        raise DeepEdError(f"Cannot read {path}: {error.strerror}.") from error


def compression(path: Path) -> Literal["bz2", "gz", None]:
    magic = first_bytes(path, 3)
    return "bz2" if magic == b"BZh" else "gz" if magic[:2] == b"\x1f\x8b" else None


def open_decompressed(path: Path) -> io.BufferedIOBase:
    """The content of a file, whether it is plain, .gz or .bz2; reading it may raise READ_ERRORS."""
    kind = compression(path)
    return bz2.open(path) if kind == "bz2" else gzip.open(path) if kind == "gz" else open(path, "rb")


def read_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text without their ends."""
    try:
        with open_decompressed(path) as source:
            for line in source:
                yield line.decode("utf-8").rstrip("\r\n")
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DeepEdError(f"Cannot read {path}: {error}.") from error
