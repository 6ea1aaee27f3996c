"""The entity catalogue: which titles are entities, and which entity every title or redirect leads to.

Parse tasks spill a row for every title they see: as a page, as a redirect, as the target of a link or redirect. A reducer
merges the rows of a title; the driver then follows redirects by 64-bit hashes in numpy arrays, never by a dict of strings.

    entities.arrow          one row per entity, in order of entity id; memory-mapped, since every replica of a server has it
    titles.*                every title and redirect that leads to an entity, in hash order, and `titles.entities.npy`
    disambiguations.parquet pages that only list what a name can mean
"""

import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deeped_ray.corpus.shuffle import gather
from deeped_ray.corpus.wikidump import ARTICLES
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import (
    StringIndex,
    hash64,
    hashes_of,
    numbers_of,
    read_mapped,
    take_strings,
    write_hashed_strings,
    write_mapped,
)
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Mention, Page

MAX_REDIRECTS = 10
_NO_PAGE = -1
# pa.scalar would import pandas: see `numbers_of`
_NO_REDIRECT = pa.Array.from_buffers(pa.uint64(), 1, [None, pa.py_buffer(bytes(8))])[0]
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


def title_rows(pages: Iterable[Page]) -> pa.Table:
    """Every title that some pages name, with what they say of it; `redirect` is the hash of where a title leads, or 0."""
    rows: list[tuple[str, int, int, bool, bool]] = []
    named: Counter[str] = Counter()
    for page in pages:
        redirect = hash64(page.redirect) if page.redirect else 0
        rows.append((page.title, page.page_id, redirect, page.is_disambiguation, page.is_person))
        named.update(link.target for link in page.links)
        if page.redirect:
            named[page.redirect] += 0
    titles = [*(row[0] for row in rows), *named]
    num_named = len(named)
    return pa.table(
        {
            "hash": hashes_of(titles),
            "title": titles,
            "page_id": [*(row[1] for row in rows), *([_NO_PAGE] * num_named)],
            "redirect": pa.array([*(row[2] for row in rows), *([0] * num_named)], pa.uint64()),
            "is_disambiguation": [*(row[3] for row in rows), *([False] * num_named)],
            "is_person": [*(row[4] for row in rows), *([False] * num_named)],
            "num_links": [*([0] * len(rows)), *named.values()],
        },
        schema=_SCHEMA,
    )


def merge_titles(files: Sequence[Location], partition: int, target: Path) -> None:
    """Task: one row per title of a partition, in hash order. An article wins over a redirect, the lower page id over the higher."""
    table = gather(files, partition)
    links = table.group_by("title", use_threads=False).aggregate([("num_links", "sum"), ("hash", "min")])
    pages = table.filter(pc.greater_equal(table["page_id"], 0))
    is_redirect = pc.not_equal(pages["redirect"], _NO_REDIRECT)
    pages = pages.append_column("is_redirect", is_redirect).sort_by(
        [("is_redirect", "ascending"), ("page_id", "ascending")]
    )
    first = pages.group_by("title", use_threads=False).aggregate(
        [(column, "first") for column in ("page_id", "redirect", "is_disambiguation", "is_person")]
    )
    merged = links.join(first, "title", join_type="left outer", use_threads=False).sort_by(
        [("hash_min", "ascending"), ("title", "ascending")]
    )
    result = pa.table(
        {
            "hash": merged["hash_min"],
            "title": merged["title"],
            "page_id": pc.fill_null(merged["page_id_first"], _NO_PAGE),
            "redirect": pc.fill_null(merged["redirect_first"], _NO_REDIRECT),
            "is_disambiguation": pc.fill_null(merged["is_disambiguation_first"], False),
            "is_person": pc.fill_null(merged["is_person_first"], False),
            "num_links": merged["num_links_sum"],
        },
        schema=_SCHEMA,
    )
    pq.write_table(result, target, compression="zstd")


@dataclass(frozen=True)
class Resolution:
    """Which entity every merged title leads to."""

    entity_of_row: npt.NDArray[np.int32]
    """Row of the merged titles -> entity id, -1 for none."""
    row_of_entity: npt.NDArray[np.int64]
    num_pages: int
    """Entities below this id have a page."""


def resolve(table: pa.Table, *, min_links_without_page: int) -> Resolution:
    """Follow redirects, and decide what is an entity.

    Articles come first, by page id; then titles without a page that are linked often enough, by title. Redirect loops,
    dead ends and chains beyond MAX_REDIRECTS lead nowhere.
    """
    hashes, page_ids = table["hash"].to_numpy(), table["page_id"].to_numpy()
    redirects, is_disambiguation = (
        table["redirect"].to_numpy(),
        table["is_disambiguation"].to_numpy(zero_copy_only=False),
    )
    if np.any(hashes[1:] == hashes[:-1]):
        raise DeepEdError(
            "Two titles of the dump have the same 64-bit hash; please report this as a bug, with the dump's name."
        )
    rows = np.arange(len(hashes))
    is_redirect = redirects > 0
    target = np.minimum(np.searchsorted(hashes, redirects), max(len(hashes) - 1, 0))
    is_dead = is_redirect & (hashes[target] != redirects)
    final = np.where(is_redirect, target, rows)
    for _ in range(MAX_REDIRECTS):
        final = np.where(is_redirect[final] & ~is_dead[final], target[final], final)
    leads_somewhere = ~is_redirect[final]
    num_links = np.bincount(
        final[leads_somewhere], weights=table["num_links"].to_numpy()[leads_somewhere], minlength=len(rows)
    )
    has_page = (page_ids >= 0) & ~is_redirect
    articles = np.flatnonzero(has_page & ~is_disambiguation)
    articles = articles[np.argsort(page_ids[articles], kind="stable")]
    # Differs from the paper, where an entity has a page
    is_pageless = ~has_page & ~is_redirect & (num_links >= min_links_without_page) & (min_links_without_page > 0)
    pageless = np.flatnonzero(is_pageless)
    pageless = pageless[pc.sort_indices(table["title"].take(pa.array(pageless))).to_numpy()]
    row_of_entity = np.concatenate([articles, pageless])
    entity_of_row = np.full(len(rows), -1, dtype=np.int32)
    entity_of_row[row_of_entity] = np.arange(len(row_of_entity), dtype=np.int32)
    entity_of_row = np.where(leads_somewhere, entity_of_row[final], -1).astype(np.int32)
    return Resolution(entity_of_row, row_of_entity, len(articles))


def write_names(folder: Path, table: pa.Table, resolution: Resolution) -> None:
    """The index of names, which counting needs, and the list of disambiguation pages."""
    leads = np.flatnonzero(resolution.entity_of_row >= 0)
    names = table.take(pa.array(leads))
    write_hashed_strings(folder, "titles", names["hash"].to_numpy(), names["title"])
    np.save(folder / "titles.entities.npy", resolution.entity_of_row[leads])
    disambiguations = table.filter(pc.and_(table["is_disambiguation"], pc.equal(table["redirect"], _NO_REDIRECT)))
    pq.write_table(disambiguations.select(["page_id", "title"]), folder / "disambiguations.parquet")


def persons_of(table: pa.Table, resolution: Resolution) -> npt.NDArray[np.bool_]:
    """Which entities are persons by their own pages."""
    is_person: npt.NDArray[np.bool_] = table["is_person"].to_numpy()[resolution.row_of_entity]
    return is_person


def write_entities(
    folder: Path,
    table: pa.Table,
    resolution: Resolution,
    *,
    num_links: npt.NDArray[np.int64],
    num_words: npt.NDArray[np.int64],
    is_person: npt.NDArray[np.bool_],
) -> None:
    rows = table.take(pa.array(resolution.row_of_entity))
    num_entities = len(resolution.row_of_entity)
    redirects = (table["redirect"].to_numpy() > 0) & (resolution.entity_of_row >= 0)
    entities = pa.table(
        {
            "entity_id": pa.array(np.arange(num_entities), pa.int32()),
            "title": rows["title"].cast(pa.large_string()),
            "page_id": rows["page_id"],
            "has_page": np.arange(num_entities) < resolution.num_pages,
            "is_list": pc.match_substring_regex(
                rows["title"], r"^(List of|Lists of|Liste |Liste$|Lista |Lijst van|Список )"
            ),
            "is_person": is_person,
            "num_redirects": np.bincount(resolution.entity_of_row[redirects], minlength=num_entities),
            "num_links": num_links,
            "num_words": num_words,
        }
    )
    write_mapped(folder / "entities.arrow", entities)


class Catalogue:
    """Reads the catalogue of a corpus part."""

    def __init__(self, part: Part) -> None:
        columns = read_mapped(part.path / "entities.arrow")
        self._titles = columns["title"]
        self.page_ids, self.num_links, self.num_words, self.is_person, has_page = (
            numbers_of(columns[name]) for name in ("page_id", "num_links", "num_words", "is_person", "has_page")
        )
        self._article_ids = self.page_ids[: np.count_nonzero(has_page)]  # those with a page come first
        self._names = StringIndex(part.path, "titles")
        self._name_entities = part.array("titles.entities")
        summary = part.path / "summary.json"
        known = json.loads(summary.read_text()) if summary.exists() else {}
        self._articles: str = known.get("articles", ARTICLES)

    def __len__(self) -> int:
        return len(self._titles)

    def title(self, entity_id: int) -> str:
        title: str = self._titles[entity_id].as_py()
        return title

    def titles(self, entity_ids: npt.NDArray[np.int64]) -> list[str]:
        """`title` for many at once."""
        return take_strings(self._titles, entity_ids)

    def url(self, title: str) -> str:
        """Where Wikipedia, or the wiki that the dump is of, has the page."""
        return _url(self._articles, title)

    def find(self, title: str) -> int | None:
        """The entity of a title, after redirects; None for a title the knowledge base does not have."""
        row = self._names.find(normalize_title(title))
        return None if row is None else int(self._name_entities[row])

    def find_page(self, page_id: int) -> int | None:
        """The entity of an article's page id; articles are numbered in the order of their ids, before all other entities."""
        place = int(np.searchsorted(self._article_ids, page_id))
        is_known = place < len(self._article_ids) and self._article_ids[place] == page_id
        return place if is_known else None

    def find_gold(self, mention: Mention) -> int | None:
        """The entity a mention is annotated with, by title, else by page id."""
        found = self.find(mention.gold) if mention.gold else None
        if found is None and mention.gold_page_id is not None:
            found = self.find_page(mention.gold_page_id)
        return found

    def require(self, title: str) -> int:
        entity_id = self.find(title)
        if entity_id is None:
            raise DeepEdError(
                f"No entity {title!r} in this knowledge base. `deeped mention` shows which entities a name can mean."
            )
        return entity_id


@functools.lru_cache(maxsize=2**16)  # the same few entities are answered again and again
def _url(articles: str, title: str) -> str:
    return articles + quote(title.replace(" ", "_"), safe="/:@!$()*,;'")


class ExtendedCatalogue(Catalogue):
    """A catalogue with entities that only a candidate list names; they are numbered after its own."""

    def __init__(self, part: Part, named: Iterable[tuple[str, int]]) -> None:
        super().__init__(part)
        self.extra_titles: list[str] = []
        self._named: dict[str, int] = {}
        self._entity_of_page: dict[int, int] = {}
        for title, page_id in named:
            entity = self.find(title)
            if entity is None:
                entity = super().__len__() + len(self.extra_titles)
                self.extra_titles.append(title)
            self._named[title] = entity
            self._entity_of_page.setdefault(page_id, entity)
        zeros = np.zeros(len(self.extra_titles), dtype=np.int64)
        pages = {entity: page_id for page_id, entity in self._entity_of_page.items()}
        extra_pages = [pages.get(super(ExtendedCatalogue, self).__len__() + i, -1) for i in range(len(zeros))]
        self.page_ids = np.concatenate([self.page_ids, np.array(extra_pages, dtype=np.int64)])
        self.num_links, self.num_words = (np.concatenate([own, zeros]) for own in (self.num_links, self.num_words))
        self.is_person = np.concatenate([self.is_person, zeros > 0])

    def __len__(self) -> int:
        return super().__len__() + len(self.extra_titles)

    def title(self, entity_id: int) -> str:
        own = super().__len__()
        return super().title(entity_id) if entity_id < own else self.extra_titles[entity_id - own]

    def titles(self, entity_ids: npt.NDArray[np.int64]) -> list[str]:
        return [self.title(entity_id) for entity_id in entity_ids.tolist()]

    def find(self, title: str) -> int | None:
        found = self._named.get(title)
        if found is None:
            found = super().find(title)
        return self._named.get(normalize_title(title)) if found is None else found

    def find_gold(self, mention: Mention) -> int | None:
        """By the page id that the lists know, since titles of lists and annotations come from different years."""
        listed = self._entity_of_page.get(mention.gold_page_id) if mention.gold_page_id is not None else None
        return super().find_gold(mention) if listed is None else listed
