"""What a fresh dump changes in a corpus, so that only that is read and counted again.

All that ingest counts are sums over pages. The sums of a fresh dump are those of the earlier one, without the pages that
are gone, and with those that are new; a page that was changed is both. Which these are is told by the keys of pages. A
page that stays is moved, too, if a title it links to leads elsewhere now: it is taken out as it was counted, and counted
anew. The result is the same to the byte as if all pages were counted.

Vocabulary and teaching articles stay those of the earlier corpus: word vectors, entity vectors and the linker rest on them.

Shards of the dump with the same bytes as before are not parsed again: `shards.json` in the part `pages` has their digests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray import __version__
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import GRAPH, LINK_WORDS, PAGE_WORDS
from deeped_ray.corpus.pages import Bools, Ids, Keys, keys_of, read_chosen
from deeped_ray.corpus.wikidump import DumpShard, plain_range
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of, read_strings
from deeped_ray.storage.location import Location

SHARDS = "shards.json"
ANCHORS = "anchors"
"""CSR of the part `corpus`: entities that the links of a mention lead to, and how many, before titles and further sources."""
WORTH_SHARE = 0.3
"""If more of the pages have changed, to count all of them takes less time."""
ANCHOR_COLUMNS = ("entities", "counts")
_BLOCK = 2**24


# -- shards of the dump


def digest_of(shard: DumpShard) -> str:
    """Of all that the pages of a shard depend on: its bytes, the wiki, and the program that parses it."""
    digest = blake2b(repr((shard.kind, _site(shard), __version__)).encode(), digest_size=16)
    if shard.kind == "plain":
        for _, content in plain_range(shard, b"<doc " if shard.site.is_extracted else b"<page>"):
            digest.update(content)
    else:
        for start in range(shard.offsets[0], shard.offsets[-1], _BLOCK):
            digest.update(shard.path.read_bytes(start, min(start + _BLOCK, shard.offsets[-1])))
    return digest.hexdigest()


def _site(shard: DumpShard) -> tuple[Any, ...]:
    site = shard.site
    return site.language, sorted(site.namespaces), site.articles, site.is_extracted


class Parsed(NamedTuple):
    """What is left of an earlier dump's shards; any node can be handed this."""

    pages: Part
    shards: list[dict[str, Any]]
    """What their tasks returned."""

    @classmethod
    def of(cls, pages: Part) -> "Parsed":
        return cls(pages, (pages.location / SHARDS).read_json()["shards"])

    @property
    def digests(self) -> list[str]:
        return [each["digest"] for each in self.shards]

    def find(self, digest: str) -> dict[str, Any] | None:
        """What the task of such a shard returned. The report of a damaged one names the dump: it is parsed again."""
        return next((each for each in self.shards if each["digest"] == digest and not each["damage"]), None)

    def file(self, lot: str) -> Location:
        return self.pages.location / f"pages-{lot}.parquet"


# -- pages


class Piece(NamedTuple):
    """Some pages of a shard, and whether they are counted or taken out."""

    shard: Location
    keys: Keys | None = None
    """None: all pages."""
    sign: int = 1

    @property
    def name(self) -> str:
        return self.shard.stem if self.sign > 0 else f"gone-{self.shard.stem}"

    @property
    def label(self) -> str:
        """What logs call it."""
        return self.shard.name


@dataclass(frozen=True)
class Difference:
    """Pages of two dumps."""

    gone: dict[Location, Keys]
    """By shard of the earlier dump. Shards without any are left out."""
    new: dict[Location, Keys]
    stayed: dict[Location, Keys]
    """By shard of the fresh dump."""

    @classmethod
    def between(cls, earlier: Sequence[Location], fresh: Sequence[Location]) -> "Difference | None":
        """None if a page stands twice in one of them, so that its key does not say which."""
        before, after = ({shard: keys_of(shard) for shard in shards} for shards in (earlier, fresh))
        old, new = (np.sort(np.concatenate([np.zeros(0, np.uint64), *each.values()])) for each in (before, after))
        if any((keys[1:] == keys[:-1]).any() for keys in (old, new)):
            return None
        return cls(
            gone=_filled({shard: keys[~np.isin(keys, new)] for shard, keys in before.items()}),
            new=_filled({shard: keys[~np.isin(keys, old)] for shard, keys in after.items()}),
            stayed=_filled({shard: keys[np.isin(keys, old)] for shard, keys in after.items()}),
        )

    @property
    def changed_share(self) -> float:
        gone, new, stayed = (sum(map(len, each.values())) for each in (self.gone, self.new, self.stayed))
        return max(gone, new) / max(1, stayed + new)

    def pieces(self) -> list[Piece]:
        gone = [Piece(shard, keys, -1) for shard, keys in self.gone.items()]
        return [*gone, *(Piece(shard, keys) for shard, keys in self.new.items())]

    def with_moved(self, moved: Keys, earlier: Sequence[Location]) -> "Difference":
        """Pages that stay, but have to be counted anew, as gone and new."""
        gone = {shard: _union(self.gone.get(shard), _among(keys_of(shard), moved)) for shard in earlier}
        new = {shard: _among(keys, moved) for shard, keys in self.stayed.items()}
        shards = dict.fromkeys([*self.new, *new])
        return Difference(
            _filled(gone), _filled({each: _union(self.new.get(each), new.get(each)) for each in shards}), {}
        )

    def titles_gone(self) -> list[str]:
        tables = [read_chosen(shard, ["title"], keys) for shard, keys in self.gone.items()]
        return [title for table in tables for title in table["title"].to_pylist()]


def _filled(found: dict[Location, Keys]) -> dict[Location, Keys]:
    return {shard: keys for shard, keys in found.items() if len(keys)}


def _among(keys: Keys, others: Keys) -> Keys:
    return keys[np.isin(keys, others)]


def _union(*found: Keys | None) -> Keys:
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *(each for each in found if each is not None)]))


def find_moved(shard: Location, keys: Keys, titles: pa.Array) -> list[int]:
    """Keys of the pages among these that have one of the titles, or link to one."""
    table = read_chosen(shard, ["title", "links", "key"], None)
    links = table["links"].combine_chunks()
    links = links.combine_chunks() if isinstance(links, pa.ChunkedArray) else links
    page = np.repeat(np.arange(len(links)), links.value_lengths().to_numpy())
    leads = pc.is_in(links.flatten().field("target"), value_set=titles).to_numpy(zero_copy_only=False)
    is_moved = pc.is_in(table["title"], value_set=titles).to_numpy(zero_copy_only=False).copy()
    is_moved[page[leads]] = True
    found: list[int] = _among(table["key"].to_numpy()[is_moved], keys).tolist()
    return found


# -- entities and mentions


class Earlier(NamedTuple):
    """A corpus whose counts are kept up; any node can be handed this."""

    corpus: Part
    entities: Ids
    """Entity there -> entity here, -1 for those that are no more."""


ENTITY_COLUMNS = {PAGE_WORDS: ("entity",), LINK_WORDS: ("entity",), GRAPH: ("entity", "word")}
"""Of rows of a table: those that hold entities."""


def rename_entities(rows: pa.Table, earlier: Earlier, *columns: str) -> pa.Table:
    """Rows of an earlier corpus with the entities of this one; those of entities that are no more are left out."""
    for name in columns:
        now = earlier.entities[rows[name].to_numpy()]
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(now)).filter(pa.array(now >= 0))
    return rows


class Known(NamedTuple):
    """Which mentions an earlier corpus has counted."""

    num_mentions: int
    is_known: Bools
    fresh: Ids
    """The others."""

    @classmethod
    def none(cls, num_mentions: int) -> "Known":
        return cls(num_mentions, np.zeros(num_mentions, bool), np.arange(num_mentions))


def can_update(pages: Part, corpus: Part) -> bool:
    """Whether the parts have what an update needs, and were made by this very program."""
    has_all = (
        SHARDS in pages.record["files"] and {"teaching.json", f"{ANCHORS}.offsets.npy"} <= corpus.record["files"].keys()
    )
    return has_all and all(part.record.get("deeped_ray") == __version__ for part in (pages, corpus))


def entity_hashes(corpus: Part) -> Keys:
    """Hashes of the titles of all entities."""
    catalogue = Catalogue(corpus)
    return hashes_of(catalogue.titles(np.arange(len(catalogue))))


def renamed(before: Keys, after: Keys) -> Ids:
    """Row of each hash among others, -1 if it is not there."""
    order = np.argsort(after, kind="stable")
    place = np.minimum(np.searchsorted(after, before, sorter=order), max(len(after) - 1, 0))
    rows = order[place] if len(after) else np.full(len(before), -1)
    return np.where(after[rows] == before, rows, -1) if len(after) else rows


def titles_moved(corpus: Part, before: Keys, folder: Path, now: Keys) -> pa.Array:
    """Titles that lead elsewhere, or nowhere any more, in the index of titles in the folder.

    `before` and `now` are the hashes of the entities' titles, of the earlier corpus and of this one.
    """
    found = []
    indexes = [(corpus.path, before), (folder, now)]
    hashes, leads = zip(*(_leads(path, entities) for path, entities in indexes), strict=True)
    for own, other in ((0, 1), (1, 0)):
        rows = renamed(hashes[own], hashes[other])
        is_moved = (rows < 0) | (leads[own] != leads[other][rows])
        found.append(read_strings(indexes[own][0], "titles").take(pa.array(np.flatnonzero(is_moved))))
    return pa.concat_arrays(found).cast(pa.string())


def _leads(folder: Path, entities: Keys) -> tuple[Keys, Keys]:
    """Hashes of all titles, and of those of the entities that they lead to."""
    hashes, rows = (
        np.asarray(np.load(folder / f"titles.{name}.npy", mmap_mode="r", allow_pickle=False))
        for name in ("hashes", "entities")
    )
    return hashes, np.asarray(entities)[rows]
