"""Files that may be compressed: told by their first bytes, never by their names."""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Literal

from deeped_ray.storage.location import Address, Location
from deeped_ray.types import DeepEdError

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a missing, damaged or cut compressed file can raise."""


def first_bytes(file: Address, count: int) -> bytes:
    """As they lie on the storage."""
    try:
        return Location(file).read_bytes(0, count)
    except OSError as error:
        raise DeepEdError(f"Cannot read {file}: {error.strerror or error}.") from error


def compression(file: Address) -> Literal["bz2", "gz", None]:
    magic = first_bytes(file, 3)
    return "bz2" if magic == b"BZh" else "gz" if magic[:2] == b"\x1f\x8b" else None


def first_content(file: Address, count: int) -> bytes:
    """Decompressed, without fetching the rest; reading it may raise READ_ERRORS."""
    kind, head = compression(file), first_bytes(file, 2**20 + count)
    if kind is None:
        return head[:count]
    if kind == "gz":
        return zlib.decompressobj(wbits=31).decompress(head, count)
    content = b""
    while head and len(content) < count:
        stream = bz2.BZ2Decompressor()
        try:
            content += stream.decompress(head, count - len(content))
        except OSError:
            if content:  # what is damaged comes later
                break
            raise
        head = stream.unused_data
    if not content:
        raise EOFError("Compressed file ended before its first block did")
    return content


def open_decompressed(file: Address) -> io.BufferedIOBase:
    """The content of a file, whether it is plain, .gz or .bz2; reading it may raise READ_ERRORS."""
    path, kind = Location(file).local(), compression(file)
    return bz2.open(path) if kind == "bz2" else gzip.open(path) if kind == "gz" else open(path, "rb")


def read_lines(file: Address) -> Iterator[str]:
    """Lines of UTF-8 text without their ends."""
    try:
        with open_decompressed(file) as source:
            for line in source:
                yield line.decode("utf-8").rstrip("\r\n")
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DeepEdError(f"Cannot read {file}: {error}.") from error
