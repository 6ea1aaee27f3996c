"""Which titles are entities, and which entity every title leads to: a join over partitions, by the hashes of titles.

    redirects   every redirect asks the owner of the title that it leads to
    follow      an owner notes who asks, or asks the next owner if its title is a redirect too: a round for every step
    find        a title with a page, or with links enough, is an entity; spilled by page id, or by title
    number      entities get their numbers in that order, those of each partition one after the other
    lead        owners of entities tell the owners of all titles that lead to them
    names       the index of titles, in pieces

`owners` says who owns a title, and `titles` what comes of all this. The driver holds nothing per title.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.corpus.owners import Hashes, Ints, Owners, find_rows
from deeped_ray.corpus.shuffle import Partition, Shuffle, combined, of_table, spilled_by
from deeped_ray.corpus.titles import MAX_REDIRECTS
from deeped_ray.knowledge.strings import hashes_of, join_strings, read_strings, write_hashed_strings, write_mapped
from deeped_ray.storage.arrays import concatenate_arrays
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Found = dict[str, Any]
Run = Callable[..., Any]
"""`tasks.run`, in the folder of this run."""
ARTICLES, PAGELESS = "articles", "pageless"
_ARRAYS = ("page_ids", "is_person", "hashes")
_BYTES_PER_ROW = 500
"""About 60 bytes of a title and what is known of it, times 8: passes shall be short, and many at once."""
_PLACES = 32
"""Bits of an entity's place in its partition. The partition's number is above them."""


class Taken(NamedTuple):
    """Links that do not count: hashes of titles, in order, and how many to each."""

    hashes: Hashes
    counts: Ints

    @classmethod
    def of(cls, hashes: Hashes) -> "Taken":
        """A hash for each link."""
        return cls(*np.unique(hashes, return_counts=True))

    def left(self, hashes: Hashes, num_links: Ints) -> Ints:
        """Links to titles with these hashes, which rise, that count."""
        rows, is_there = find_rows(hashes, self.hashes)
        left = num_links.copy()
        left[rows[is_there]] -= self.counts[is_there]
        return left


# -- what tasks do


def ask(owner: int, owners: Owners, taken: Taken, removed: Hashes) -> Found:
    """The first question of every redirect: who are you that I lead to? It brings its links along."""
    table = owners.read(owner, "hash", "redirect", "num_links", "page_id")
    hashes, redirects, num_links, page_ids = (column.to_numpy() for column in table.columns)
    if np.any(hashes[1:] == hashes[:-1]):
        raise DeepEdError(
            "Two titles of the dump have the same 64-bit hash; please report this as a bug, with the dump's name."
        )
    asks = redirects > 0
    links, is_removed = taken.left(hashes, num_links), np.isin(hashes, removed)
    columns = {"target": redirects, "source": hashes, "links": links, "is_removed": is_removed}
    owners.send("asks-0", owner, pa.table({name: values[asks] for name, values in columns.items()}))
    return {
        "asks": int(asks.sum()),
        "linked": int(np.count_nonzero(num_links)),
        "last_id": int(page_ids.max(initial=0)),
    }


def follow(owner: int, owners: Owners, step: int) -> Found:
    """Note who asks for a title, or hand it on to where the title leads."""
    asks = owners.received(f"asks-{step - 1}", owner, num_senders=len(owners))
    hashes, redirects = (column.to_numpy() for column in owners.read(owner, "hash", "redirect").columns)
    rows, is_there = find_rows(hashes, asks["target"].to_numpy())
    asks, rows = asks.filter(pa.array(is_there)), rows[is_there]
    goes_on = redirects[rows] > 0 if len(rows) else np.zeros(0, bool)
    owners.keep(f"found-{step}", owner, asks.filter(pa.array(~goes_on)))
    onward = asks.filter(pa.array(goes_on)).set_column(0, "target", pa.array(redirects[rows[goes_on]], pa.uint64()))
    owners.send(f"asks-{step}", owner, onward)
    return {"asks": onward.num_rows}


def find_entities(
    owner: int,
    owners: Owners,
    steps: int,
    shuffle: Shuffle,
    taken: Taken,
    removed: Hashes,
    min_links_without_page: int,
    num_page_ids: int,
) -> Found:
    """Articles, by page id, and titles without a page that are linked often enough, by title."""
    table = owners.read(owner, "hash", "title", "page_id", "redirect", "is_disambiguation", "is_person", "num_links")
    found = _found(owners, owner, steps)
    hashes = table["hash"].to_numpy()
    rows, _ = find_rows(hashes, found["target"].to_numpy())
    links = taken.left(hashes, table["num_links"].to_numpy())
    np.add.at(links, rows, found["links"].to_numpy())
    is_removed = np.isin(hashes, removed)
    is_removed[rows[found["is_removed"].to_numpy(zero_copy_only=False)]] = True
    is_redirect = table["redirect"].to_numpy() > 0
    has_page = (table["page_id"].to_numpy() >= 0) & ~is_redirect
    is_article = has_page & ~table["is_disambiguation"].to_numpy(zero_copy_only=False) & ~is_removed
    # Differs from the paper, where an entity has a page
    is_linked = (links >= min_links_without_page) & (min_links_without_page > 0)
    is_pageless = ~has_page & ~is_redirect & is_linked & ~is_removed
    articles = table.filter(pa.array(is_article)).select(["page_id", "hash", "title", "is_person"])
    pageless = table.filter(pa.array(is_pageless)).select(["page_id", "hash", "title", "is_person"])
    pageless = pageless.add_column(0, "prefix", pa.array(_prefixes(pageless["title"]), pa.uint64()))
    spilled = shuffle.spill(f"{ARTICLES}-{owner:04d}", articles, num_keys=num_page_ids)
    return {"spilled": spilled | shuffle.spill(f"{PAGELESS}-{owner:04d}", pageless)}


def _found(owners: Owners, owner: int, steps: int) -> pa.Table:
    """Redirects that lead to titles of this owner, after all their steps."""
    if not steps:
        kinds = {"target": pa.uint64(), "source": pa.uint64(), "links": pa.int64(), "is_removed": pa.bool_()}
        return pa.schema(kinds).empty_table()
    return owners.kept([f"found-{step}" for step in range(1, steps + 1)], owner)


def _prefixes(titles: pa.ChunkedArray) -> list[int]:
    """The first eight bytes as a number: in the order of the titles, but for equal ones."""
    return [int.from_bytes(title.encode()[:8].ljust(8, b"\0"), "big") for title in titles.to_pylist()]


def number(place: int, partitions: Sequence[Partition], shuffle: Shuffle, owners: Owners) -> Found:
    """Entities of one partition, in order, as pieces of the catalogue. Their owners are told the numbers."""
    partition, pieces = partitions[place], dict[str, int]()
    hashes, count = list[Hashes](), 0
    with (shuffle.folder / "entities").filling() as folder:
        for each in shuffle.slices(partition):
            order = pc.sort_indices(each.rows["page_id" if partition.table == ARTICLES else "title"])
            rows = each.rows.take(order).combine_chunks()
            name = f"{partition.name}.{len(pieces)}"
            write_mapped(folder / f"{name}.arrow", pa.table({"string": rows["title"].cast(pa.large_string())}))
            columns = (rows[column].to_numpy() for column in ("page_id", "is_person", "hash"))
            for array, values in zip(_ARRAYS, columns, strict=True):
                np.save(folder / f"{name}.{array}.npy", values)
            hashes.append(rows["hash"].to_numpy())
            pieces[name] = rows.num_rows
            count += rows.num_rows
    numbers = (place << _PLACES) + np.arange(count)
    owners.send("numbers", place, pa.table({"hash": np.concatenate(hashes), "number": numbers}))
    return {"pieces": pieces}


def lead(owner: int, owners: Owners, steps: int, starts: Ints) -> Found:
    """Tell all titles which entity they lead to. `starts` has the first entity of each partition."""
    numbers = owners.received("numbers", owner, num_senders=len(starts)).sort_by("hash")
    hashes, places = (column.to_numpy() for column in numbers.columns)
    entities = starts[places >> _PLACES] + (places & (2**_PLACES - 1))
    found = _found(owners, owner, steps)
    rows, is_entity = find_rows(hashes, found["target"].to_numpy())
    led = np.concatenate([hashes, found["source"].to_numpy()[is_entity]])
    owners.send(
        "leads", owner, pa.table({"hash": led, "entity": np.concatenate([entities, entities[rows[is_entity]]])})
    )
    return {}


def write_names(owner: int, owners: Owners) -> Found:
    """One piece of the index of titles."""
    leads = owners.received("leads", owner, num_senders=len(owners)).sort_by("hash")
    table = owners.read(owner, "hash", "title")
    rows, _ = find_rows(table["hash"].to_numpy(), leads["hash"].to_numpy())
    with (owners.folder / "names").filling() as folder:
        name = f"titles-{owner:04d}"
        write_hashed_strings(folder, name, leads["hash"].to_numpy(), table["title"].take(pa.array(rows)))
        np.save(folder / f"{name}.entities.npy", leads["entity"].to_numpy().astype(np.int32))
    return {"names": leads.num_rows}


# -- what the driver does


class Entities(NamedTuple):
    """All entities, in order; arrays are mapped."""

    num_pages: int
    """Entities below this number have a page."""
    num_names: int
    """Titles that lead to one."""
    num_linked: int
    """Titles that a link leads to."""
    titles: list[pa.Array]
    """In pieces."""
    page_ids: Ints
    is_person: npt.NDArray[np.bool_]
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.page_ids)


@contextlib.contextmanager
def resolve(
    files: Sequence[Location],
    run: Run,
    shuffle: Shuffle,
    folder: Path,
    *,
    min_links_without_page: int,
    taken: Taken,
    removed: Sequence[str] = (),
) -> Iterator[Entities]:
    """Number entities, and write the index of titles into the folder."""
    owners = Owners.of(files, shuffle.folder, max_rows=shuffle.max_bytes // _BYTES_PER_ROW)
    gone = np.sort(hashes_of(removed))
    over_owners = functools.partial(_over, run, range(len(owners)), owners)
    first = over_owners("redirects", ask, taken, gone)
    steps, asking = 0, _sum(first, "asks")
    while asking and steps <= MAX_REDIRECTS:  # loops, and chains that are longer, lead nowhere
        steps += 1
        asking = _sum(over_owners(f"follow {steps}", follow, steps), "asks")
    num_page_ids = 1 + max(found["last_id"] for found in first)
    finding = (steps, shuffle, taken, gone, min_links_without_page, num_page_ids)
    spilled = spilled_by(over_owners("find entities", find_entities, *finding))
    plans = [
        shuffle.plan(ARTICLES, of_table(ARTICLES, spilled), num_keys=num_page_ids),
        shuffle.plan(PAGELESS, of_table(PAGELESS, spilled)),
    ]
    partitions = combined(run, "combine entities", shuffle, plans)
    numbering = (partitions, shuffle, owners)
    made = run("number", number, range(len(partitions)), *numbering, unit="partitions").results
    counts = [sum(found["pieces"].values()) for found in made]
    if not sum(counts):
        raise DeepEdError("The dump has no article: only redirects, disambiguation pages or other namespaces.")
    over_owners("lead", lead, steps, np.cumsum([0, *counts])[:-1])
    num_names = _sum(over_owners("index titles", write_names), "names")
    with (shuffle.folder / "names").fetched() as names:
        own = [names / f"titles-{owner:04d}" for owner in range(len(owners))]
        join_strings(own, folder, "titles")
        concatenate_arrays([Path(f"{piece}.entities.npy") for piece in own], folder / "titles.entities.npy")
    with (shuffle.folder / "entities").fetched() as entities:
        pieces = [name for found in made for name in found["pieces"]]
        for array in _ARRAYS:
            parts = [entities / f"{name}.{array}.npy" for name in pieces]
            concatenate_arrays(parts, entities / f"{array}.npy")
        yield Entities(
            sum(count for partition, count in zip(partitions, counts, strict=True) if partition.table == ARTICLES),
            num_names,
            _sum(first, "linked"),
            [read_strings(entities, name) for name in pieces],
            *(np.asarray(np.load(entities / f"{array}.npy", mmap_mode="r")) for array in _ARRAYS),
        )


def _over(
    run: Run, places: range, owners: Owners, stage: str, function: Callable[..., Found], *shared: Any
) -> list[Found]:
    found: list[Found] = run(stage, function, places, owners, *shared, unit="partitions").results
    return found


def _sum(results: Sequence[Found], name: str) -> int:
    return sum(found[name] for found in results)
