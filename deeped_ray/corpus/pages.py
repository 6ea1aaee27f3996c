"""Parsed pages in Parquet shards: what the first pass over a dump leaves for everything after it.

A page has a key, a hash of all that is known of it: pages of two dumps with the same key are the same (`update`).

`read_pages` gives them one at a time. `read_lots` gives many as one text with the places of their links: later passes work
on arrays, and numpy is fast only on long ones.
"""

import itertools
from collections.abc import Iterator, Sequence
from hashlib import blake2b
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
_KEYED = _SCHEMA.append(pa.field("key", pa.uint64()))
Ids = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def write_pages(shard: Location, pages: Sequence[Page]) -> None:
    columns: dict[str, list[Any]] = {name: [getattr(page, name) for page in pages] for name in _SCHEMA.names}
    columns["links"] = _links_of(pages)
    columns["key"] = [key_of(page) for page in pages]
    with shard.writing() as path:
        pq.write_table(pa.table(columns, schema=_KEYED), path, compression="zstd")


def _links_of(pages: Sequence[Page]) -> pa.Array:
    """By columns: Arrow takes long to look into a dict for every link."""
    borders = np.cumsum([0, *(len(page.links) for page in pages)], dtype=np.int32)
    links = [link for page in pages for link in page.links]
    values = [pa.array([link[place] for link in links], field.type) for place, field in enumerate(_LINK)]
    return pa.ListArray.from_arrays(borders, pa.StructArray.from_arrays(values, fields=list(_LINK)))


def key_of(page: Page) -> int:
    fields = (page.page_id, page.title, page.redirect, page.is_disambiguation, page.is_person, *page.links)
    digest = blake2b(repr(fields).encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(page.text.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def keys_of(shard: Location) -> Keys:
    """In the order of the pages."""
    keys: Keys = shard.reading(lambda source: read_table(source, columns=["key"]))["key"].to_numpy()
    return keys


def page_shards(part: Part) -> list[Location]:
    return part.files("pages-*.parquet")


def read_chosen(shard: Location, columns: Sequence[str], keys: Keys | None = None) -> pa.Table:
    """Columns of all pages of a shard, or of those with one of the keys."""
    if keys is None:
        return shard.reading(lambda source: read_table(source, columns=list(columns)))
    table = shard.reading(lambda source: read_table(source, columns=[*columns, "key"]))
    return table.filter(pa.array(np.isin(table["key"].to_numpy(), keys))).drop_columns(["key"])


def read_pages(shard: Location, keys: Keys | None = None) -> Iterator[Page]:
    """The pages of one shard, or some of them, redirects included."""
    for row in read_chosen(shard, _SCHEMA.names, keys).to_pylist():
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


def read_lots(shard: Location, keys: Keys | None = None) -> Iterator[Lot]:
    """The articles and disambiguation pages of one shard, or some of them, about a million characters at a time."""
    table = read_chosen(shard, ["title", "text", "links", "redirect", "is_disambiguation"], keys)
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
