"""Wikidata ids of pages in Wikimedia's `xxwiki-DATE-page_props.sql.gz`, read in one pass and never held whole.

INSERT INTO `page_props` VALUES (1,'wikibase_item','Q5296',NULL),(799,'page_image_free','Zürich.png',NULL),...
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from deeped_ray.storage.compressed import READ_ERRORS, open_decompressed
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

_BLOCK_BYTES = 2**20
_HEADER_BYTES = 2**16
# Quotes within a value are escaped, so this matches no text that a value happens to contain. A match has one "(": a
# block can be cut at the last one.
_ROW = re.compile(rb"\((\d{1,10}),'wikibase_item','(?:Q([1-9]\d{0,8})|([^']{0,60}))'")
_MOST_BYTES = 120
"""Of a match."""
Ids = npt.NDArray[np.int64]


def is_sql(head: bytes) -> bool:
    """Whether a file that begins like this is a dump of SQL."""
    return b"INSERT INTO" in head or b"CREATE TABLE" in head or head.startswith(b"-- M")


def read_page_props(file: Location) -> Iterator[tuple[Ids, Ids]]:
    """Page ids and the numbers of their Wikidata ids, block by block."""
    try:
        yield from _read(file)
    except READ_ERRORS as error:
        raise DeepEdError(f"Cannot read {file} to its end: {error}. Fetch it again.") from error


def _read(file: Location) -> Iterator[tuple[Ids, Ids]]:
    with open_decompressed(file) as source:
        block = source.read(_HEADER_BYTES)
        _check_table(file, block)
        content = b""
        while block:
            content += block
            last = content.rfind(b"(")  # its row may go on in the next block
            end = last if 0 <= len(content) - last < _MOST_BYTES else len(content)
            yield _numbers(file, _ROW.findall(content, 0, end))
            tail, content = content[-_MOST_BYTES:], content[end:]
            block = source.read(_BLOCK_BYTES)
    yield _numbers(file, _ROW.findall(content))
    if b"-- Dump completed" not in tail:
        raise DeepEdError(
            f"{file} is cut off: it ends with {tail[-40:]!r}, not with `-- Dump completed`. Fetch it again."
        )


def _check_table(file: Location, head: bytes) -> None:
    table = re.search(rb"(?:CREATE TABLE|INSERT INTO) `(\w+)`", head)
    if table is None or table[1] != b"page_props":
        found = f"the table {table[1].decode()}" if table else f"{head[:40]!r}"
        raise DeepEdError(
            f"{file} is no dump of the table page_props: found {found}. Expected xxwiki-DATE-page_props.sql.gz."
        )


def _numbers(file: Location, rows: list[tuple[bytes, bytes, bytes]]) -> tuple[Ids, Ids]:
    wrong = next((row for row in rows if not row[1]), None)
    if wrong is not None:
        raise DeepEdError(
            f"{file}: page {wrong[0].decode()} has {wrong[2].decode(errors='replace')!r}, which is no Wikidata id. Expected Q64 or the like."
        )
    pairs = np.array([(int(page), int(number)) for page, number, _ in rows], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
