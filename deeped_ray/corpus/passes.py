"""What the tasks of each pass over the corpus do; `ingest` says in which order.

A task writes whole files, under names that depend on its item alone: a task that is run again writes the same ones. It
returns what it has counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from deeped_ray.corpus import (
    cooccurrence,
    occurrences,
    own_entities,
    prior_sources,
    priors,
    teaching,
    titles,
    vocabulary,
)
from deeped_ray.corpus.config import LOT
from deeped_ray.corpus.cooccurrence import GRAPH, LINK_WORDS, PAGE_WORDS, TABLES
from deeped_ray.corpus.entity_files import read_entities
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.pages import Ids, Links, read_lots, read_pages, write_pages
from deeped_ray.corpus.prior_sources import SourceShard
from deeped_ray.corpus.priors import MergeRule
from deeped_ray.corpus.shuffle import Shuffle
from deeped_ray.corpus.teaching import Choice
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.corpus.wikidump import DumpShard, DumpStats, read_shard
from deeped_ray.corpus.wikiextractor import read_docs
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import read_strings
from deeped_ray.storage.location import Location
from deeped_ray.types import Page

Item = TypeVar("Item")
Found = dict[str, Any]
"""What a task returns. `lots` are the names under which it has spilled rows: reducers read these, not what a glob finds."""


# -- dump -> pages, titles and words


def parse_shard(item: tuple[int, DumpShard], shuffle: Shuffle, lot_characters: int) -> Found:
    """Parse one shard of the dump, a lot of pages at a time."""
    number, shard = item
    stats, counts, lots = DumpStats(), Counter[str](), []
    for place, lot in enumerate(_lots(_pages_of(shard, stats), lot_characters, size=lambda page: len(page.text))):
        lots.append(f"{number:06d}-{place:04d}")
        counts.update(_spill_pages(lots[-1], lot, shuffle))
    counts["skipped_other_namespaces"] = stats.num_other_namespaces
    counts["skipped_pages_without_title"] = len(stats.untitled_page_ids)
    return {"lots": lots, "counts": counts, "damage": stats.damage, "untitled": stats.untitled_page_ids[:20]}


def _pages_of(shard: DumpShard, stats: DumpStats) -> Iterator[Page]:
    if shard.site.is_extracted:
        return read_docs(shard, stats)
    return (parse_page(raw, shard.site) for raw in read_shard(shard, stats))


def _lots(items: Iterable[Item], max_characters: int, *, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """A file that cannot be cut may hold a whole Wikipedia: its pages are dealt with by the lot."""
    lot: list[Item] = []
    total = 0
    for item in items:
        lot.append(item)
        total += size(item) + 100
        if total >= max_characters:
            yield lot
            lot, total = [], 0
    if lot:
        yield lot


def _spill_pages(name: str, lot: Sequence[Page], shuffle: Shuffle) -> Counter[str]:
    write_pages(shuffle.folder / f"pages-{name}.parquet", lot)
    return _spill_words(name, lot, shuffle)


def _spill_words(name: str, lot: Sequence[Page], shuffle: Shuffle) -> Counter[str]:
    shuffle.spill(f"titles-{name}", titles.rows(lot))
    shuffle.spill(f"words-{name}", vocabulary.rows(lot))
    return Counter(
        pages=len(lot),
        redirects=sum(page.redirect is not None for page in lot),
        disambiguation_pages=sum(page.is_disambiguation for page in lot),
        links=sum(len(page.links) for page in lot),
    )


def reread_pages(shard: Location, shuffle: Shuffle) -> Found:
    """A lot of pages that is kept: its titles and words enter the tables anew, beside those of other lots."""
    name = shard.stem.removeprefix("pages-")
    return {"lots": [name], "counts": _spill_words(name, list(read_pages(shard)), shuffle), "damage": []}


def reread_own(shard: Location, shuffle: Shuffle, changed: Sequence[str]) -> Found:
    """A lot of entities that is kept, without those that were changed since."""
    name, gone = shard.stem.removeprefix("pages-"), frozenset(changed)
    lot = [page for page in read_pages(shard) if page.title.partition("#")[0] not in gone]
    if not lot:
        return {"lots": [], "counts": {}, "damage": []}
    counts = _spill_pages(name, lot, shuffle)
    own_entities.filtered(shard.parent / f"{name}.parquet", shuffle.folder / f"{name}.parquet", gone)
    counts["own_entities"] = sum(page.page_id >= 0 and page.redirect is None for page in lot)
    return {"lots": [name], "counts": counts, "damage": []}


def parse_entities(item: tuple[int, Location], shuffle: Shuffle, lot_characters: int) -> Found:
    """Read one file of entities, a lot at a time: as pages, and a table of what else they have."""
    number, file = item
    counts, lots = Counter[str](), []
    entities = read_entities(file, is_strict=number != own_entities.FOLDED)
    by_size = _lots(entities, lot_characters, size=lambda entity: sum(len(page.text) for page in entity.pages()))
    for place, lot in enumerate(by_size):
        lots.append(f"own-{number:06d}-{place:04d}")
        counts.update(_spill_pages(lots[-1], [page for entity in lot for page in entity.pages()], shuffle))
        own_entities.write(shuffle.folder / f"{lots[-1]}.parquet", lot)
        counts.update(
            own_entities=len(lot),
            own_names=sum(len(entity.aliases) for entity in lot),
            examples=sum(len(entity.examples) for entity in lot),
            shortened_entities=sum(entity.is_shortened for entity in lot),
        )
    return {"lots": lots, "counts": counts, "damage": []}


def merge_partition(partition: int, shuffle: Shuffle, lots: Sequence[str]) -> Found:
    """The distinct titles and words of one partition, each in hash order."""
    counts = {}
    with shuffle.folder.filling() as folder:
        for table, reduce in (("titles", titles.reduce), ("words", vocabulary.reduce)):
            rows = shuffle.gather([f"{table}-{lot}" for lot in lots], partition)
            counts[table] = reduce(rows, folder / f"{table}-{partition:04d}.parquet")
    return counts


# -- pages -> what teaches the linker


def pick_teaching(shard: Location, folder: Location, choice: Choice) -> Found:
    """The articles of one shard that may teach."""
    return {"articles": teaching.pick(shard, folder / f"teaching-{shard.stem}.parquet", choice)}


# -- pages -> mentions, words and links of entities


def spill_names(start: int, shuffle: Shuffle, names: Part) -> Found:
    """A lot of titles and redirects: they enter the mention table beside the links."""
    lot = f"mentions-titles-{start:010d}"
    found = read_strings(names.path, "titles").slice(start, LOT).to_pylist()
    entities = names.array("titles.entities")[start : start + LOT].tolist()
    shuffle.spill(lot, priors.title_rows(found, entities))
    return {"lots": [lot]}


def spill_aliases(file: Location, shuffle: Shuffle, names: Part) -> Found:
    """The names of some entities from files: they enter the mention table with their counts."""
    lot = f"mentions-{file.stem}"
    shuffle.spill(lot, own_entities.alias_rows(file, Names(names)))
    return {"lots": [lot]}


def count_shard(
    shard: Location,
    shuffle: Shuffle,
    names: Part,
    words: Vocabulary,
    num_entities: int,
    window: int,
    taught: Choice,
) -> Found:
    """Follow the links of one shard of pages; spill mentions, page words, link words and edges between entities."""
    index, counts = Names(names), Counter(tokens=0, links=0, dead_links=0)
    mentions: Counter[tuple[str, int]] = Counter()
    pairs: dict[str, list[cooccurrence.Pairs]] = {table: [] for table in TABLES}
    for lot in read_lots(shard):
        is_counted = ~taught.are_chosen(lot.titles)[lot.link_page]
        links = Links.of(lot, np.where(is_counted, index.find_all(lot.link_target), -1))
        mentions.update(priors.links_of(lot, links))
        counts.update(links=len(links.page), dead_links=int(is_counted.sum()) - len(links.page))
        # a disambiguation page says what a name can mean; it is no text about anything
        links = links.where(lot.is_article[links.page])
        owners = np.where(lot.is_article, index.find_all(lot.titles), -1)
        tokens = cooccurrence.tokens_of(lot, words)
        counts.update(tokens=int(np.diff(tokens.borders)[lot.is_article].sum()))
        pairs[PAGE_WORDS].append(cooccurrence.page_words(lot, tokens, owners, words))
        pairs[LINK_WORDS].append(cooccurrence.link_words(tokens, links, window=window))
        pairs[GRAPH].append(cooccurrence.edges(links, owners))
    name = f"mentions-{shard.stem}"
    shuffle.spill(name, priors.rows(mentions))
    for table in TABLES:
        shuffle.spill_by_id(f"{table}-{shard.stem}", cooccurrence.rows(pairs[table]), num_ids=num_entities)
    return {"lots": [name], "counts": counts}


def spill_source(item: tuple[int, int, SourceShard], shuffle: Shuffle, names: Part, page_ids: Ids) -> Found:
    """One shard of a further source of priors, by the lot."""
    source, place, shard = item
    counts, lots = Counter[str](), []
    for number, lot in enumerate(prior_sources.count_lots(shard, Names(names), page_ids, counts)):
        lots.append(f"mentions-source-{source:03d}-{place:06d}-{number:04d}")
        shuffle.spill(lots[-1], priors.rows(lot, source=source))
    return {"lots": lots, "counts": counts}


def reduce_partition(
    partition: int,
    shuffle: Shuffle,
    mentions: Sequence[str],
    shards: Sequence[str],
    num_entities: int,
    rule: MergeRule,
    uniform_sources: Sequence[int],
) -> Found:
    """One partition of the mention table and of every CSR array."""
    with (shuffle.folder / "pieces").filling() as folder:
        target = folder / f"mentions-{partition:04d}"
        found = priors.reduce(shuffle.gather(mentions, partition), target, rule=rule, uniform_sources=uniform_sources)
        occurrences.write_sequences(target, found)
        for table in TABLES:
            rows = shuffle.gather([f"{table}-{shard}" for shard in shards], partition)
            entities = shuffle.ids(partition, num_ids=num_entities)
            cooccurrence.reduce(rows, entities, folder / f"{table}-{partition:04d}")
    return {"mentions": len(found)}


# -- pages -> where mentions stand, now that it is known what they are


def spill_occurrences(shard: Location, shuffle: Shuffle, sequences: Part, num_mentions: int, taught: Choice) -> Found:
    """The mentions in the text of one shard."""
    rows = occurrences.rows(shard, SequenceIndex(sequences.path), taught)
    shuffle.spill_by_id(f"occurrences-{shard.stem}", rows, num_ids=num_mentions)
    return {"mentions": rows.num_rows}


def reduce_occurrences(partition: int, shuffle: Shuffle, shards: Sequence[str], num_mentions: int) -> Found:
    """One partition of the counts of occurrences."""
    mentions = shuffle.ids(partition, num_ids=num_mentions)
    with (shuffle.folder / "counts").filling() as folder:
        rows = shuffle.gather([f"occurrences-{shard}" for shard in shards], partition)
        occurrences.reduce(rows, mentions, folder / f"occurrences-{partition:04d}")
    return {"mentions": len(mentions)}
