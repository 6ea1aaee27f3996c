"""Titles and redirects: which titles are entities, and which entity every title leads to.

    titles-*.parquet                in the part `pages`: every title that a page has or names
    titles.*, titles.entities.npy   in the part `corpus`: those that lead to an entity, in hash order, and where they lead

Parse tasks spill a row for every title they see: as a page, as a redirect, as the target of a link or redirect. A reducer
merges the rows of a title. Then redirects are followed by 64-bit hashes (`resolving`).

Articles come first, by page id; then titles without a page that are linked often enough, by title. Redirect loops, dead
ends and chains beyond MAX_REDIRECTS lead nowhere.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, hash64, hashes_of
from deeped_ray.types import Page

MAX_REDIRECTS = 10
_NO_PAGE = -1
# pa.scalar would import pandas: see `numbers_of`
_NO_REDIRECT = pa.Array.from_buffers(pa.uint64(), 1, [None, pa.py_buffer(bytes(8))])[0]
_WITHOUT_PAGE = {"page_id": _NO_PAGE, "redirect": _NO_REDIRECT, "is_disambiguation": False, "is_person": False}
_SCHEMA = pa.schema(
    [
        ("hash", pa.uint64()),
        ("title", pa.string()),
        ("page_id", pa.int64()),
        ("redirect", pa.uint64()),
        ("is_disambiguation", pa.bool_()),
        ("is_person", pa.bool_()),
        ("num_links", pa.int64()),
    ]
)


def rows(pages: Sequence[Page]) -> pa.Table:
    """Every title that some pages have or name, and what they say of it; `redirect` is the hash of where a title leads, or 0."""
    redirects = [hash64(page.redirect) if page.redirect else 0 for page in pages]
    found = [
        (page.title, page.page_id, redirect, page.is_disambiguation, page.is_person, 0)
        for page, redirect in zip(pages, redirects, strict=True)
    ]
    named = Counter(link.target for page in pages for link in page.links)
    named.update({page.redirect: 0 for page in pages if page.redirect})
    found += [(title, _NO_PAGE, 0, False, False, num_links) for title, num_links in named.items()]
    columns = [list(column) for column in zip(*found, strict=True)]
    return pa.table([hashes_of(columns[0]), *columns], schema=_SCHEMA)


def reduce(table: pa.Table) -> pa.Table:
    """One row per title, in hash order. An article wins over a redirect, the lower page id over the higher."""
    links = table.group_by("title", use_threads=False).aggregate([("num_links", "sum"), ("hash", "min")])
    pages = table.filter(pc.greater_equal(table["page_id"], 0))
    pages = pages.append_column("is_redirect", pc.not_equal(pages["redirect"], _NO_REDIRECT))
    pages = pages.sort_by([("is_redirect", "ascending"), ("page_id", "ascending")])
    first = pages.group_by("title", use_threads=False).aggregate([(column, "first") for column in _WITHOUT_PAGE])
    merged = links.join(first, "title", join_type="left outer", use_threads=False)
    merged = merged.sort_by([("hash_min", "ascending"), ("title", "ascending")])
    columns = [pc.fill_null(merged[f"{column}_first"], value) for column, value in _WITHOUT_PAGE.items()]
    return pa.table([merged["hash_min"], merged["title"], *columns, merged["num_links_sum"]], schema=_SCHEMA)


def entity_of_page(page_id: int, page_ids: npt.NDArray[np.int64]) -> int | None:
    """By the page ids of entities 0, 1, ...: articles come first, in the order of their ids."""
    place = int(np.searchsorted(page_ids, page_id))
    return place if place < len(page_ids) and page_ids[place] == page_id else None


class Names:
    """Title -> entity, by the sorted hashes of the part `corpus`, also while it is written."""

    def __init__(self, part: Part) -> None:
        self._index = StringIndex(part.path, "titles")
        self._entities = np.asarray(part.array("titles.entities"))

    def find(self, title: str) -> int | None:
        """The entity of a normalised title, after redirects."""
        row = self._index.find(title)
        return None if row is None else int(self._entities[row])

    def find_all(self, titles: Sequence[str]) -> npt.NDArray[np.int64]:
        """`find` for many titles at once, -1 for those that lead nowhere."""
        rows = self._index.find_all(titles)
        return np.where(rows >= 0, self._entities[rows], -1).astype(np.int64)
