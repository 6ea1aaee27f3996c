"""The entity catalogue: which titles are entities, and which entity every title or redirect leads to."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.artifacts import Part
from deeped_ray.corpus.strings import StringIndex, hash_order, write_strings
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError

MAX_REDIRECTS = 10


class PageHeader(NamedTuple):
    """What the catalogue needs to know of a page."""

    page_id: int
    title: str
    redirect: str | None
    is_disambiguation: bool


@dataclass(frozen=True)
class CatalogueDraft:
    """The catalogue while it is being built, on the driver and in the counting tasks."""

    titles: list[str]
    page_ids: list[int]
    title_to_id: dict[str, int]
    """Entity ids of all titles and redirects."""


def draft_catalogue(headers: Iterable[PageHeader]) -> CatalogueDraft:
    """Every article is an entity; redirects lead to one, over several steps if need be; loops and dead ends are dropped."""
    articles: dict[str, int] = {}
    redirects: dict[str, str] = {}
    for header in headers:
        if header.redirect is not None:
            redirects.setdefault(header.title, header.redirect)
        elif not header.is_disambiguation:
            articles.setdefault(header.title, header.page_id)
    ordered = sorted(articles.items(), key=lambda article: (article[1], article[0]))
    title_to_id = {title: entity_id for entity_id, (title, _) in enumerate(ordered)}
    for source in redirects:
        target, steps = source, 0
        while target in redirects and target not in articles and steps < MAX_REDIRECTS:
            target, steps = redirects[target], steps + 1
        if target in articles:
            title_to_id.setdefault(source, title_to_id[target])
    return CatalogueDraft([title for title, _ in ordered], [page_id for _, page_id in ordered], title_to_id)


def write_catalogue(folder: Path, draft: CatalogueDraft, *, num_links: list[int], num_words: list[int]) -> None:
    table = pa.table(
        {
            "entity_id": pa.array(range(len(draft.titles)), pa.int32()),
            "title": pa.array(draft.titles, pa.string()),
            "page_id": pa.array(draft.page_ids, pa.int64()),
            "num_links": pa.array(num_links, pa.int64()),
            "num_words": pa.array(num_words, pa.int64()),
        }
    )
    pq.write_table(table, folder / "entities.parquet")
    names = list(draft.title_to_id)
    names = [names[row] for row in hash_order(names)]
    write_strings(folder, "titles", names)
    np.save(folder / "titles.entities.npy", np.array([draft.title_to_id[name] for name in names], dtype=np.int32))


class Catalogue:
    """Reads the catalogue of a corpus part."""

    def __init__(self, part: Part) -> None:
        table = pq.read_table(part.path / "entities.parquet", memory_map=True)
        self._titles = table.column("title").combine_chunks()
        self.page_ids = table.column("page_id").to_numpy()
        self.num_links = table.column("num_links").to_numpy()
        self.num_words = table.column("num_words").to_numpy()
        self._names = StringIndex(part.path, "titles")
        self._name_entities = part.array("titles.entities")

    def __len__(self) -> int:
        return len(self._titles)

    def title(self, entity_id: int) -> str:
        title: str = self._titles[entity_id].as_py()
        return title

    def find(self, title: str) -> int | None:
        """The entity of a title, after redirects; None for a title the knowledge base does not have."""
        row = self._names.find(normalize_title(title))
        return None if row is None else int(self._name_entities[row])

    def require(self, title: str) -> int:
        entity_id = self.find(title)
        if entity_id is None:
            raise DeepEdError(
                f"No entity {title!r} in this knowledge base. `deeped mention` shows which entities a name can mean."
            )
        return entity_id
