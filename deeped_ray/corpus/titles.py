"""Titles and redirects: which titles are entities, and which entity every title leads to.

    titles-*.parquet                in the part `pages`: every title that a page has or names
    titles.*, titles.entities.npy   in the part `corpus`: those that lead to an entity, in hash order, and where they lead

Parse tasks spill a row for every title they see: as a page, as a redirect, as the target of a link or redirect. A reducer
merges the rows of a title. The driver then follows redirects by 64-bit hashes in numpy arrays, never by a dict of strings.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, hash64, hashes_of, write_hashed_strings
from deeped_ray.types import DeepEdError, Page

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


@dataclass(frozen=True)
class Resolution:
    """Which entity every merged title leads to."""

    table: pa.Table
    """The merged titles."""
    entity_of_row: npt.NDArray[np.int32]
    """Row of the table -> entity id, -1 for none."""
    row_of_entity: npt.NDArray[np.int64]
    num_pages: int
    """Entities below this id have a page."""

    @property
    def num_entities(self) -> int:
        return len(self.row_of_entity)

    @property
    def num_names(self) -> int:
        """Titles and redirects that lead to an entity."""
        return int(np.count_nonzero(self.entity_of_row >= 0))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Of the table, by entity id."""
        values: npt.NDArray[Any] = self.table[name].to_numpy()[self.row_of_entity]
        return values


def resolve(
    table: pa.Table,
    *,
    min_links_without_page: int,
    num_taken: npt.NDArray[np.int64] | int = 0,
    removed: Sequence[str] = (),
) -> Resolution:
    """Follow redirects, and decide what is an entity. `num_taken` links to each title do not count. `removed` are none.

    Articles come first, by page id; then titles without a page that are linked often enough, by title. Redirect loops,
    dead ends and chains beyond MAX_REDIRECTS lead nowhere.
    """
    page_ids = table["page_id"].to_numpy()
    is_disambiguation = table["is_disambiguation"].to_numpy(zero_copy_only=False)
    is_redirect = table["redirect"].to_numpy() > 0
    final = _follow(table["hash"].to_numpy(), table["redirect"].to_numpy())
    leads_somewhere = ~is_redirect[final]
    is_removed = np.zeros(len(final), dtype=bool)
    is_removed[final[np.isin(table["hash"].to_numpy(), hashes_of(removed))]] = True
    num_links = np.bincount(final, (table["num_links"].to_numpy() - num_taken) * leads_somewhere, len(final))
    has_page = (page_ids >= 0) & ~is_redirect
    articles = np.flatnonzero(has_page & ~is_disambiguation & ~is_removed)
    articles = articles[np.argsort(page_ids[articles], kind="stable")]
    # Differs from the paper, where an entity has a page
    is_pageless = ~has_page & ~is_redirect & (num_links >= min_links_without_page) & (min_links_without_page > 0)
    pageless = np.flatnonzero(is_pageless & ~is_removed)
    pageless = pageless[pc.sort_indices(table["title"].take(pa.array(pageless))).to_numpy()]
    row_of_entity = np.concatenate([articles, pageless])
    if not len(row_of_entity):
        raise DeepEdError("The dump has no article: only redirects, disambiguation pages or other namespaces.")
    entity_of_row = np.full(len(final), -1, dtype=np.int32)
    entity_of_row[row_of_entity] = np.arange(len(row_of_entity), dtype=np.int32)
    entity_of_row = np.where(leads_somewhere, entity_of_row[final], -1).astype(np.int32)
    return Resolution(table, entity_of_row, row_of_entity, len(articles))


def _follow(hashes: npt.NDArray[np.uint64], redirects: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Row -> row at the end of its redirects; itself for a title that is no redirect."""
    if np.any(hashes[1:] == hashes[:-1]):
        raise DeepEdError(
            "Two titles of the dump have the same 64-bit hash; please report this as a bug, with the dump's name."
        )
    target = np.minimum(np.searchsorted(hashes, redirects), max(len(hashes) - 1, 0))
    goes_on = (redirects > 0) & (hashes[target] == redirects)
    final = np.where(redirects > 0, target, np.arange(len(hashes)))
    for _ in range(MAX_REDIRECTS):
        final = np.where(goes_on[final], target[final], final)
    return final


def join(folder: Path, resolution: Resolution) -> None:
    """The index of all titles that lead to an entity."""
    leads = np.flatnonzero(resolution.entity_of_row >= 0)
    names = resolution.table.take(pa.array(leads))
    write_hashed_strings(folder, "titles", names["hash"].to_numpy(), names["title"])
    np.save(folder / "titles.entities.npy", resolution.entity_of_row[leads])


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
