"""Parsed pages in Parquet shards: what the first pass over a dump leaves for everything after it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.artifacts import Part
from deeped_ray.types import Link, Page

_LINK = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("target", pa.string())])
_SCHEMA = pa.schema(
    [
        ("page_id", pa.int64()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("links", pa.list_(_LINK)),
        ("redirect", pa.string()),
        ("is_disambiguation", pa.bool_()),
        ("is_person", pa.bool_()),
    ]
)


def write_pages(shard: Path, pages: Sequence[Page]) -> None:
    rows = [
        {
            "page_id": page.page_id,
            "title": page.title,
            "text": page.text,
            "links": [{"start": link.start, "end": link.end, "target": link.target} for link in page.links],
            "redirect": page.redirect,
            "is_disambiguation": page.is_disambiguation,
            "is_person": page.is_person,
        }
        for page in pages
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), shard, compression="zstd")


def read_pages(shard: Path) -> Iterator[Page]:
    """The pages of one shard, redirects included."""
    for row in pq.read_table(shard).to_pylist():
        links = tuple(Link(**link) for link in row.pop("links"))
        yield Page(**row, links=links)


def page_shards(part: Part) -> list[Path]:
    return sorted(part.path.glob("pages-*.parquet"))
