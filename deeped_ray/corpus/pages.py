"""Parsed pages in Parquet shards: what the first pass over a dump leaves for everything after it.

`read_pages` gives them one at a time. `read_lots` gives many as one text with the places of their links: later passes work
on arrays, and numpy is fast only on long ones.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location
from deeped_ray.types import Link, Page

LOT_CHARACTERS = 2**20
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
Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def write_pages(shard: Location, pages: Sequence[Page]) -> None:
    columns: dict[str, list[Any]] = {name: [getattr(page, name) for page in pages] for name in _SCHEMA.names}
    columns["links"] = [[link._asdict() for link in page.links] for page in pages]
    with shard.writing() as path:
        pq.write_table(pa.table(columns, schema=_SCHEMA), path, compression="zstd")


def page_shards(part: Part) -> list[Location]:
    return part.files("pages-*.parquet")


def read_pages(shard: Location) -> Iterator[Page]:
    """The pages of one shard, redirects included."""
    for row in shard.reading(read_table).to_pylist():
        links = tuple(Link(**link) for link in row.pop("links"))
        yield Page(**row, links=links)


class Lot(NamedTuple):
    """Some pages as one text, with a line end after each."""

    text: str
    borders: Ids
    """Page i is text[borders[i] : borders[i + 1] - 1]."""
    titles: list[str]
    is_article: Bools
    """False for disambiguation pages."""
    link_page: Ids
    link_start: Ids
    """In the text of the lot."""
    link_end: Ids
    link_target: list[str]


class Links(NamedTuple):
    """Links of a lot that lead to an entity."""

    page: Ids
    start: Ids
    end: Ids
    entity: Ids

    @classmethod
    def of(cls, lot: Lot, entities: Ids) -> "Links":
        """`entities` has the entity that each link leads to, or -1."""
        return cls(lot.link_page, lot.link_start, lot.link_end, entities).where(entities >= 0)

    def where(self, is_kept: Bools) -> "Links":
        return Links(*(column[is_kept] for column in self))


def read_lots(shard: Location) -> Iterator[Lot]:
    """The articles and disambiguation pages of one shard, about a million characters at a time."""
    columns = ["title", "text", "links", "redirect", "is_disambiguation"]
    table = shard.reading(lambda source: read_table(source, columns=columns))
    pages = table.filter(pc.is_null(table["redirect"]))
    ends = np.cumsum(pc.utf8_length(pages["text"]).to_numpy().astype(np.int64) + 1)
    firsts = np.flatnonzero(np.diff(np.append(-1, ends // LOT_CHARACTERS)))
    for start, end in itertools.pairwise([*firsts.tolist(), len(pages)]):
        yield _lot(pages.slice(start, end - start).combine_chunks())


def _lot(pages: pa.Table) -> Lot:
    texts = pages["text"].to_pylist()
    borders = np.cumsum([0, *(len(text) + 1 for text in texts)])
    links = pages["links"].combine_chunks()
    page = np.repeat(np.arange(len(texts)), links.value_lengths().to_numpy())
    cells = links.flatten()
    start, end = (cells.field(name).to_numpy() + borders[page] for name in ("start", "end"))
    return Lot(
        text="\n".join([*texts, ""]),
        borders=borders,
        titles=pages["title"].to_pylist(),
        is_article=~pages["is_disambiguation"].to_numpy(),
        link_page=page,
        link_start=start,
        link_end=end,
        link_target=cells.field("target").to_pylist(),
    )
