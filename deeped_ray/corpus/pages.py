"""Parsed pages in Parquet shards: what the first pass over a dump leaves for everything after it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location
from deeped_ray.types import Link, Page

_BATCH_PAGES = 256
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


def write_pages(shard: Location, pages: Sequence[Page]) -> None:
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
    with shard.writing() as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), path, compression="zstd")


def read_pages(shard: Location) -> Iterator[Page]:
    """The pages of one shard, redirects included."""
    for row in shard.reading(read_table).to_pylist():
        links = tuple(Link(**link) for link in row.pop("links"))
        yield Page(**row, links=links)


class PageText(NamedTuple):
    text: str
    link_starts: npt.NDArray[np.int64]
    link_ends: npt.NDArray[np.int64]


def read_texts(shard: Location) -> Iterator[PageText]:
    """The articles of one shard with the places of their links, in a fraction of the time that pages take."""
    columns = ["text", "links", "redirect", "is_disambiguation"]
    table = shard.reading(lambda source: read_table(source, columns=columns))
    for batch in table.to_batches(_BATCH_PAGES):
        is_article = pc.and_(pc.is_null(batch["redirect"]), pc.invert(batch["is_disambiguation"]))
        articles = batch.filter(is_article)
        links = articles["links"]
        borders = links.offsets.to_numpy()
        starts, ends = (links.values.field(name).to_numpy().astype(np.int64) for name in ("start", "end"))
        for number, text in enumerate(articles["text"].to_pylist()):
            cells = slice(borders[number], borders[number + 1])
            yield PageText(text, starts[cells], ends[cells])


def page_shards(part: Part) -> list[Location]:
    return part.files("pages-*.parquet")
