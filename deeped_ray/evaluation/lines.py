"""Lines of text files, plain or gzipped."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from deeped_ray.types import DeepEdError


def read_lines(path: Path) -> Iterator[str]:
    """Lines without their ends; whether the file is gzipped is told from its first bytes."""
    try:
        with open(path, "rb") as probe:
            is_gzip = probe.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rt", encoding="utf-8") if is_gzip else open(path, encoding="utf-8") as handle:
            for line in handle:
                yield line.rstrip("\r\n")
    except IsADirectoryError as error:
        raise DeepEdError(f"Cannot read {path}: it is a folder, expected a file. Folders are read as wned:.") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DeepEdError(f"Cannot read {path}: {error}.") from error
