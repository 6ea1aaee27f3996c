"""The entity catalogue: `entities.arrow`, a row for every entity; memory-mapped, since every replica of a server has it."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.corpus.own_entities import Urls
from deeped_ray.corpus.resolving import Entities
from deeped_ray.corpus.titles import Names, entity_of_page
from deeped_ray.corpus.wikidata_ids import WikidataIds, ids_part, persons_of
from deeped_ray.corpus.wikidump import ARTICLES
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import join_arrays, numbers_of, read_mapped, take_strings, write_mapped
from deeped_ray.storage.cache import temporary_folder
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Mention

_FEW, _REMEMBERED = 2000, 2**15
"""Entities whose titles are asked for one by one, at most; titles that are kept, since the same come again and again."""


def write(
    folder: Path,
    entities: Entities,
    *,
    num_links: npt.NDArray[np.int64],
    num_words: npt.NDArray[np.int64],
    is_person: npt.NDArray[np.bool_],
) -> None:
    number = np.arange(len(entities), dtype=np.int32)
    with temporary_folder(folder) as aside:
        columns = {
            "entity_id": number,
            "title": join_arrays(entities.titles, aside),
            "page_id": entities.page_ids,
            "has_page": number < entities.num_pages,
            "is_person": is_person,
            "num_links": num_links,
            "num_words": num_words,
        }
        write_mapped(folder / "entities.arrow", pa.table(columns))


class Catalogue:
    """Reads the catalogue of a corpus part, and Wikidata ids if it is given their part."""

    def __init__(self, part: Part, ids: Part | None = None) -> None:
        columns = read_mapped(part.path / "entities.arrow")
        self._titles = columns["title"]
        self.page_ids, self.num_links, self.num_words, self.is_person, has_page = (
            numbers_of(columns[name]) for name in ("page_id", "num_links", "num_words", "is_person", "has_page")
        )
        persons = persons_of(ids)
        if len(persons):
            self.is_person = self.is_person.copy()
            self.is_person[persons] = True
        self._article_ids = self.page_ids[: np.count_nonzero(has_page)]  # those with a page come first
        self._names, self._urls = Names(part), Urls(part)
        self.wikidata = WikidataIds(ids, len(self._titles))
        self._remembered = functools.lru_cache(maxsize=_REMEMBERED)(self._title)
        summary = part.path / "summary.json"
        known = json.loads(summary.read_text()) if summary.exists() else {}
        self._articles: str = known.get("articles", ARTICLES)

    @classmethod
    def open(cls, kb: KnowledgeBase) -> "Catalogue":
        """With the Wikidata ids, if there are any."""
        return cls(kb.open("corpus"), ids_part(kb))

    def __len__(self) -> int:
        return len(self._titles)

    @property
    def num_articles(self) -> int:
        return len(self._article_ids)

    def title(self, entity_id: int) -> str:
        return self._title(entity_id)

    def _title(self, entity_id: int) -> str:
        title: str = self._titles[entity_id].as_py()
        return title

    def titles(self, entity_ids: npt.NDArray[np.int64]) -> list[str]:
        """`title` for many at once."""
        if len(entity_ids) > _FEW:
            return take_strings(self._titles, entity_ids)
        return [self._remembered(entity_id) for entity_id in entity_ids.tolist()]

    def url(self, title: str) -> str:
        """Its own, or where Wikipedia, or the wiki that the dump is of, has the page."""
        return self._urls.find(title) or _url(self._articles, title)

    def find(self, title: str) -> int | None:
        """The entity of a title, after redirects; None for a title the knowledge base does not have."""
        return self._names.find(normalize_title(title))

    def starting_with(self, prefix: str, *, count: int) -> list[int]:
        """Entities whose titles begin so, most linked first. Looks at all titles."""
        is_hit = pc.starts_with(self._titles, pattern=normalize_title(prefix))
        found = np.flatnonzero(numbers_of(is_hit))
        order = np.argsort(-self.num_links[found], kind="stable")[:count]
        return [int(entity_id) for entity_id in found[order]]

    def find_page(self, page_id: int) -> int | None:
        """The entity of an article's page id."""
        return entity_of_page(page_id, self._article_ids)

    def articles(self, keys: npt.NDArray[np.int64] | list[str]) -> npt.NDArray[np.int64]:
        """The articles with these page ids, or with exactly these titles; -1 where there is none."""
        if isinstance(keys, list):
            found = self._names.find_all(keys)
            titles = self.titles(np.maximum(found, 0))
            is_own = np.array([key == title for key, title in zip(keys, titles, strict=True)], bool)
            return np.where(is_own & (found < self.num_articles), found, -1)
        places = np.minimum(np.searchsorted(self._article_ids, keys), self.num_articles - 1)
        return np.where(self._article_ids[places] == keys, places, -1).astype(np.int64)

    def identify(self, name: str) -> int | None:
        """The entity that a Wikidata id names, if there are ids, else the one of a title."""
        found = self.wikidata.find(name)
        return self.find(name) if found is None else found

    def find_gold(self, mention: Mention) -> int | None:
        """The entity a mention is annotated with, by Wikidata id or title, else by page id."""
        found = self.identify(mention.gold) if mention.gold else None
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

    def __init__(self, part: Part, named: Iterable[tuple[str, int]], ids: Part | None = None) -> None:
        super().__init__(part, ids)
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
        self.wikidata.numbers = np.concatenate([self.wikidata.numbers, zeros.astype(np.uint32)])

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
