"""What entities from files have beside their pages: names with counts, addresses, Wikidata ids.

own-*.parquet                     in the part `pages`: a row for every entity
mentions.claimed.npy              in the part `corpus`: rows of their names in the mention table
urls.*, urls.addresses.arrow      in the part `corpus`: titles that have an address of their own, in hash order, and it
"""

import functools
from collections.abc import Container, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.corpus import priors
from deeped_ray.corpus.entity_files import FIRST_PAGE_ID, OwnEntity
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.corpus.wikidump import OWN_ARTICLES
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, hash_order, read_mapped, write_mapped, write_strings
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location
from deeped_ray.text import STOP_WORDS, bare_title, normalize_mention, words_of

CLAIMED = "mentions.claimed"
FOLDED = 999_999
"""The number of the file that holds changes, among the files of entities."""
_ALIAS = pa.struct([("name", pa.string()), ("count", pa.float64())])
_SCHEMA = pa.schema(
    {"title": pa.string(), "aliases": pa.list_(_ALIAS), "url": pa.string(), "wikidata": pa.string()}  # "" for none
)


def write(target: Location, entities: Sequence[OwnEntity]) -> None:
    columns = {
        "title": [each.title for each in entities],
        "aliases": [[{"name": name, "count": count} for name, count in each.aliases] for each in entities],
        "url": [each.url for each in entities],
        "wikidata": [each.wikidata for each in entities],
    }
    with target.writing() as path:
        pq.write_table(pa.table(columns, schema=_SCHEMA), path, compression="zstd")


def files_of(pages: Part) -> list[Location]:
    return pages.files("own-*.parquet")


def is_own(shard: Location) -> bool:
    """Whether a lot of pages comes from a file of entities, not from a dump."""
    return shard.name.startswith("pages-own-")


def is_folded(shard: Location) -> bool:
    return shard.name.startswith(f"pages-own-{FOLDED:06d}-")


def filtered(source: Location, target: Location, changed: Container[str]) -> None:
    """The rows of entities that have not changed."""
    table = source.reading(read_table)
    is_kept = [title not in changed for title in table["title"].to_pylist()]
    with target.writing() as path:
        pq.write_table(table.filter(pa.array(is_kept, pa.bool_())), path, compression="zstd")


def alias_rows(file: Location, names: Names) -> pa.Table:
    """Aliases as mentions, for the reducers: they are counts of the same source as the links."""
    counts: dict[tuple[str, int], float] = {}
    table = file.reading(lambda source: read_table(source, columns=["title", "aliases"]))
    entities = names.find_all(table["title"].to_pylist()).tolist()
    for entity, aliases in zip(entities, table["aliases"].to_pylist(), strict=True):
        for alias in aliases if entity >= 0 else ():
            counts[alias["name"], entity] = counts.get((alias["name"], entity), 0) + alias["count"]
    return priors.rows(counts)


def claim_names(pages: Part, folder: Path) -> None:
    """Note the names of entities from files. Nobody may have linked them yet; they are names because their owner says so."""
    names = set[str]()
    for file in files_of(pages):
        table = file.reading(lambda source: read_table(source, columns=["title", "aliases"]))
        titles = [normalize_mention(title) for title in table["title"].to_pylist()]
        names.update(titles, map(bare_title, titles))
        names.update(alias["name"] for aliases in table["aliases"].to_pylist() for alias in aliases)
    if not names:
        return
    rows = StringIndex(folder, "mentions").find_all([name for name in names if is_telling(name)])
    rows = np.unique(rows[rows >= 0])
    np.save(folder / f"{CLAIMED}.npy", rows)


def claimed_names(corpus: Part) -> list[str]:
    """Names of entities from files."""
    if f"{CLAIMED}.npy" not in corpus.record.get("files", {}):
        return []
    return StringIndex(corpus.path, "mentions").take(corpus.array(CLAIMED).astype(np.int64))


@functools.lru_cache(maxsize=2**18)  # the names of a running server are asked for again with every change
def is_telling(name: str) -> bool:
    """False for what is made of stop words alone, and stands everywhere: it is linked where a span says so, but not looked for."""
    return any(word.lower() not in STOP_WORDS for word in words_of(name))


def join_urls(pages: Part, folder: Path, names: Names, page_ids: npt.NDArray[np.int64]) -> None:
    """The addresses of all entities that no wiki has a page of, or that have one of their own. Without any, there is no file.

    `page_ids` are those of entities 0, 1, ...
    """
    found: dict[str, str] = {}
    for file in files_of(pages):
        table = file.reading(lambda source: read_table(source, columns=["title", "url"]))
        titles = table["title"].to_pylist()
        entities = names.find_all(titles)
        is_elsewhere = (entities >= 0) & (page_ids[entities] < FIRST_PAGE_ID)
        for title, url, has_page in zip(titles, table["url"].to_pylist(), is_elsewhere.tolist(), strict=True):
            if url or not has_page:
                found[title] = url or url_of(title)
    if found:
        ordered = [*found]
        ordered = [ordered[place] for place in hash_order(ordered).tolist()]
        write_strings(folder, "urls", ordered)
        addresses = pa.array([found[title] for title in ordered], pa.large_string())
        write_mapped(folder / "urls.addresses.arrow", pa.table({"string": addresses}))


def url_of(title: str) -> str:
    """Of an entity that has no address."""
    return OWN_ARTICLES + quote(title.replace(" ", "_"), safe="")


def wikidata_of(pages: Part) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Titles and the numbers of their Wikidata ids, of entities that have one."""
    titles, numbers = list[str](), list[int]()
    for file in files_of(pages):
        table = file.reading(lambda source: read_table(source, columns=["title", "wikidata"]))
        for title, wikidata in zip(table["title"].to_pylist(), table["wikidata"].to_pylist(), strict=True):
            if number := number_of(wikidata):
                titles.append(title)
                numbers.append(number)
    return titles, np.array(numbers, np.int64)


class Urls:
    """Title -> its own address."""

    def __init__(self, part: Part) -> None:
        is_there = (part.path / "urls.addresses.arrow").exists()
        self._titles = StringIndex(part.path, "urls") if is_there else None
        self._addresses = read_mapped(part.path / "urls.addresses.arrow")["string"] if is_there else None

    def find(self, title: str) -> str | None:
        row = self._titles.find(title) if self._titles is not None else None
        return None if row is None or self._addresses is None else str(self._addresses[row].as_py())
