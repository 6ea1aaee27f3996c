"""Makes the part `wikidata`, the ids of entities, from a page_props dump or a table; at ingest, or at any time later.

Articles have ids; redirects and titles without a page have none. If a file gives an article two ids, the first counts.
If it gives two articles the same id, the article with the lower page id keeps it. Both are counted and named.

A table may also say of what type they are. Humans (Q5) are persons then, whatever the wiki's pages look like.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.own_entities import wikidata_of
from deeped_ray.corpus.page_props import Ids, read_page_props
from deeped_ray.corpus.wikidata_ids import PERSONS, ids_part, number_of, persons_of
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.running.config import FLAG
from deeped_ray.storage.arrow import NotPlainError, open_parquet
from deeped_ray.storage.compressed import first_bytes, read_lines
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)
MIN_SHARE = 0.4
"""Page ids of two large wikis agree for up to a third of the pages by chance."""
_ROWS = 2**16
_NAMED = 20
"""Conflicts that are named, at most."""
_ID_COLUMNS = ("wikidata", "wikidata_id", "qid", "id")
_TYPE_COLUMNS = ("type", "instance_of", "p31")
_HUMAN = re.compile(r"\b(?:Q5|human|person)\b", re.ASCII | re.IGNORECASE)
_EXPECTED = f"expected columns page_id or title, and {' or '.join(_ID_COLUMNS)}, named in the first line"


class Rows(NamedTuple):
    keys: Ids | list[str]
    """Page ids or titles."""
    numbers: Ids
    """Of their ids."""
    is_person: npt.NDArray[np.bool_] | None = None
    """None: not told."""


@dataclass(frozen=True, kw_only=True)
class WikidataConfig:
    """Wikidata ids."""

    page_props: Annotated[str | None, "Wikimedia's page_props.sql.gz of the same wiki: Wikidata ids of pages", FLAG] = (
        None
    )
    wikidata: Annotated[
        str | None,
        "table of Wikidata ids, TSV or Parquet. Columns: page_id or title, wikidata, and type, if it is known: Q5 marks persons. May be compressed.",
        FLAG,
    ] = None

    def __post_init__(self) -> None:
        if self.page_props and self.wikidata:
            raise DeepEdError("Give --page-props or --wikidata, not both.")


def add_wikidata(kb: KnowledgeBase, config: WikidataConfig) -> dict[str, Any]:
    """Make the part, unless it is current; returns what it holds. Without a file there is nothing to do."""
    given = config.page_props or config.wikidata
    own = _own(kb)
    if not given and not len(own.keys):
        return {}
    file = Location(given or "")
    identity = {"page_props" if config.page_props else "wikidata": fingerprint(file) if given else None}
    if not kb.is_current("wikidata", config=identity, parents=["corpus"]):
        with kb.write("wikidata", config=identity, parents=["corpus"]) as folder:
            found = _Found(Catalogue(kb.open("corpus")))
            if given:
                rows = (Rows(*each) for each in read_page_props(file)) if config.page_props else read_ids(file)
                for some in rows:
                    found.add(some)
                found.check(file)
            found.add(own)
            found.write(folder)
    return kb.open("wikidata").summary()


def _own(kb: KnowledgeBase) -> Rows:
    """What files of entities say."""
    pages = kb.last("pages")
    return Rows(*wikidata_of(pages)) if pages else Rows([], np.zeros(0, np.int64))


def ids_by_title(kb: KnowledgeBase) -> tuple[dict[str, Any], Rows] | None:
    """The ids that a knowledge base has, by titles, and the config of their part: for `keep_ids`, when numbers change."""
    part = ids_part(kb)
    if part is None:
        return None
    numbers, entities = np.asarray(part.array("numbers")), np.asarray(part.array("entities")).astype(np.int64)
    is_person = np.isin(entities, persons_of(part))
    titles = Catalogue(kb.open("corpus")).titles(entities)
    return part.config, Rows(titles, numbers[entities].astype(np.int64), is_person)


def keep_ids(kb: KnowledgeBase, config: Mapping[str, Any], rows: Rows) -> None:
    """The same ids for a corpus that numbers its entities differently, and those of its own entities."""
    if not kb.is_current("wikidata", config=config, parents=["corpus"]):
        with kb.write("wikidata", config=config, parents=["corpus"]) as folder:
            found = _Found(Catalogue(kb.open("corpus")))
            found.add(rows)
            found.add(_own(kb))
            found.write(folder)


class _Found:
    """What a file says of the entities of a catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._numbers = np.zeros(len(catalogue), np.uint32)
        self._is_person = np.zeros(len(catalogue), bool)
        self._counts: Counter[str] = Counter(rows=0, found=0)
        self._conflicts: list[str] = []
        self._is_by_title = False

    def add(self, rows: Rows) -> None:
        self._is_by_title = isinstance(rows.keys, list)
        entities = self._catalogue.articles(rows.keys)
        self._counts.update(rows=len(entities), found=int(np.count_nonzero(entities >= 0)))
        if rows.is_person is not None:
            self._is_person[entities[(entities >= 0) & rows.is_person]] = True
        entities, numbers = entities[entities >= 0], rows.numbers[entities >= 0]
        distinct, firsts = np.unique(entities, return_index=True)
        is_new = self._numbers[distinct] == 0
        self._numbers[distinct[is_new]] = numbers[firsts[is_new]]
        for place in np.flatnonzero(self._numbers[entities] != numbers).tolist():
            entity = int(entities[place])
            self._tell(f"{self._title(entity)}: Q{self._numbers[entity]}, then Q{numbers[place]}")

    def check(self, file: Location) -> None:
        """Refuse a file of another wiki."""
        num_found, num_rows = self._counts["found"], max(self._counts["rows"], 1)
        num_articles = max(self._catalogue.num_articles, 1)
        share = max(num_found / num_rows, np.count_nonzero(self._numbers) / num_articles)
        if (self._is_by_title and num_found) or share >= MIN_SHARE:
            return
        keys = "titles" if self._is_by_title else "page ids"
        raise DeepEdError(
            f"{file} seems to be of another wiki: {num_found / num_rows:.1%} of its {num_rows:,} {keys} are articles here,"
            f" and {num_found / num_articles:.1%} of the articles have an id."
        )

    def write(self, folder: Path) -> None:
        entities = np.flatnonzero(self._numbers)
        entities = entities[np.argsort(self._numbers[entities], kind="stable")].astype(np.int32)
        is_taken = np.append(False, np.diff(self._numbers[entities].astype(np.int64)) == 0)
        for place in np.flatnonzero(is_taken).tolist():
            first, other = (self._title(int(entities[row])) for row in (place - 1, place))
            self._tell(f"Q{self._numbers[entities[place]]}: {first}, then {other}")
        self._numbers[entities[is_taken]] = 0
        np.save(folder / "numbers.npy", self._numbers)
        np.save(folder / "entities.npy", entities[~is_taken])
        persons = np.flatnonzero(self._is_person).astype(np.int32)
        np.save(folder / PERSONS, persons)
        summary = {
            "wikidata_ids": int(np.count_nonzero(~is_taken)),
            "wikidata_persons": len(persons),
            "wikidata_rows_without_article": self._counts["rows"] - self._counts["found"],
            "wikidata_conflicts": self._counts["conflicts"],
            "wikidata_conflicts_named": self._conflicts,
        }
        if self._conflicts:
            logger.warning("%d conflicts of Wikidata ids, the first: %s", self._counts["conflicts"], self._conflicts[0])
        Location(folder / "summary.json").write_json(summary)

    def _tell(self, conflict: str) -> None:
        self._counts["conflicts"] += 1
        if len(self._conflicts) < _NAMED:
            self._conflicts.append(conflict)

    def _title(self, entity_id: int) -> str:
        return self._catalogue.title(entity_id)


# -- tables


def read_ids(file: Location) -> Iterator[Rows]:
    """A table, some thousand rows at a time."""
    return _read_parquet(file) if first_bytes(file, 4) == b"PAR1" else _read_tsv(file)


def _read_tsv(file: Location) -> Iterator[Rows]:
    lines = read_lines(file)
    names = next(lines, "").split("\t")
    columns = _columns(file, names)
    wanted = [names.index(name) for name in columns]
    cells: list[list[str]] = []
    start = 2
    for line in lines:
        if line.strip():
            row = line.split("\t")
            is_whole = len(row) == len(names)
            cells.append([row[place] for place in wanted] if is_whole else ["", line[:60], ""][: len(wanted)])
        if len(cells) == _ROWS:
            yield _rows(file, columns, [*zip(*cells, strict=True)], start=start)
            start, cells = start + len(cells), []
    if cells:
        yield _rows(file, columns, [*zip(*cells, strict=True)], start=start)


def _read_parquet(file: Location) -> Iterator[Rows]:
    try:
        table = open_parquet(file.local())
        columns = _columns(file, table.schema_arrow.names)
        start = 1
        for batch in table.iter_batches(_ROWS, columns=columns):
            cells = [["" if cell is None else str(cell) for cell in batch[name].to_pylist()] for name in columns]
            yield _rows(file, columns, cells, start=start)
            start += len(batch)
    except (OSError, pa.ArrowException, NotPlainError) as error:
        raise DeepEdError(f"Cannot read {file}: {error}") from error


def _columns(file: Location, names: Sequence[str]) -> list[str]:
    """The key, the id and, if there is one, the type. Page ids rather than titles, which change."""
    key = next((name for name in ("page_id", "title") if name in names), None)
    column = next((name for name in _ID_COLUMNS if name in names), None)
    if key is None or column is None:
        raise DeepEdError(f"{file} has columns {', '.join(names)[:100]!r}; {_EXPECTED}.")
    return [key, column, *[name for name in _TYPE_COLUMNS if name in names][:1]]


def _rows(file: Location, columns: Sequence[str], cells: Sequence[Sequence[str]], *, start: int) -> Rows:
    """Rows with an empty id are left out: there are such articles."""
    is_title = columns[0] == "title"
    keys, ids, *types = cells
    kept = [place for place, text in enumerate(ids) if text.strip()]
    numbers = []
    for place in kept:
        number = number_of(ids[place])
        if number is None or not keys[place] or not (is_title or keys[place].isdecimal()):
            found = f"{keys[place]!r}, {ids[place][:60]!r}" if keys[place] else repr(ids[place])
            raise DeepEdError(f"{file}, row {start + place}: found {found}; {_EXPECTED}, and ids such as Q64.")
        numbers.append(number)
    named = [keys[place] for place in kept]
    is_person = np.array([_HUMAN.search(types[0][place]) is not None for place in kept], bool) if types else None
    titles_or_pages = [*map(normalize_title, named)] if is_title else np.array([*map(int, named)], np.int64)
    return Rows(titles_or_pages, np.array(numbers, np.int64), is_person)
