"""What the tasks of each pass over the corpus do; `ingest` says in which order.

A task writes whole files, under names that depend on its item alone: a task that is run again writes the same ones. It
returns what it has counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from deeped_ray.corpus.cooccurrence import GRAPH, LINK_WORDS, PAGE_WORDS, TABLES, WordCounts
from deeped_ray.corpus.entity_files import read_entities
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.pages import Ids, Keys, Links, read_lots, read_pages, write_pages
from deeped_ray.corpus.prior_sources import SourceShard
from deeped_ray.corpus.priors import MergeRule
from deeped_ray.corpus.shuffle import Shuffle
from deeped_ray.corpus.teaching import Choice
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.update import (
    ANCHOR_COLUMNS,
    ANCHORS,
    ENTITY_COLUMNS,
    Earlier,
    Known,
    Parsed,
    Piece,
    digest_of,
    find_moved,
    rename_entities,
)
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.corpus.wikidump import DumpShard, DumpStats, read_shard
from deeped_ray.corpus.wikiextractor import read_docs
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.knowledge.csr import Csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import read_strings
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location, link_or_copy
from deeped_ray.types import Page

Item = TypeVar("Item")
Found = dict[str, Any]
"""What a task returns. `lots` are the names under which it has spilled rows: reducers read these, not what a glob finds."""


# -- dump -> pages, titles and words


def parse_shard(
    item: tuple[int, DumpShard], shuffle: Shuffle, lot_characters: int, parsed: Parsed | None = None
) -> Found:
    """Parse one shard of the dump, a lot of pages at a time.

    With what is `parsed` of an earlier dump, a shard that has not changed is taken over, and words are not counted: that
    is left to `count_words`, and to the pages that have changed.
    """
    number, shard = item
    digest = digest_of(shard)
    if parsed and (found := parsed.find(digest)):
        return {**found, "lots": [_take_over(parsed.file(lot), number, shuffle) for lot in found["lots"]]}
    stats, counts, lots = DumpStats(), Counter[str](), []
    for place, lot in enumerate(_lots(_pages_of(shard, stats), lot_characters, size=lambda page: len(page.text))):
        lots.append(f"{number:06d}-{place:04d}")
        counts.update(_spill_pages(lots[-1], lot, shuffle, with_words=parsed is None))
    counts["skipped_other_namespaces"] = stats.num_other_namespaces
    counts["skipped_pages_without_title"] = len(stats.untitled_page_ids)
    untitled = stats.untitled_page_ids[:20]
    return {"lots": lots, "counts": counts, "damage": stats.damage, "untitled": untitled, "digest": digest}


def _take_over(file: Location, number: int, shuffle: Shuffle) -> str:
    """A lot of an earlier dump, under the number that its shard has now."""
    name = f"{number:06d}-{file.stem.rpartition('-')[2]}"
    with (shuffle.folder / f"pages-{name}.parquet").writing() as path:
        link_or_copy(file, path)
    shuffle.spill(f"titles-{name}", titles.rows(list(read_pages(file))))
    return name


def count_words(piece: Piece, shuffle: Shuffle) -> Found:
    """The words of pages that are new, or gone."""
    rows = vocabulary.rows(read_pages(piece.shard, piece.keys))
    shuffle.spill(f"words-{piece.name}", _signed(rows, piece.sign, "count"))
    return {"lots": [piece.name]}


def carry_words(file: Location, shuffle: Shuffle) -> Found:
    """The words of an earlier dump."""
    shuffle.spill(f"words-earlier-{file.stem}", file.reading(read_table))
    return {"lots": [f"earlier-{file.stem}"]}


def _signed(rows: pa.Table, sign: int, *columns: str) -> pa.Table:
    for name in columns if sign < 0 else ():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.negate(rows[name]))
    return rows


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


def _spill_pages(name: str, lot: Sequence[Page], shuffle: Shuffle, *, with_words: bool = True) -> Counter[str]:
    write_pages(shuffle.folder / f"pages-{name}.parquet", lot)
    return _spill_words(name, lot, shuffle, with_words=with_words)


def _spill_words(name: str, lot: Sequence[Page], shuffle: Shuffle, *, with_words: bool = True) -> Counter[str]:
    shuffle.spill(f"titles-{name}", titles.rows(lot))
    if with_words:
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


def merge_partition(
    partition: int, shuffle: Shuffle, lots: Sequence[str], word_lots: Sequence[str] | None = None
) -> Found:
    """The distinct titles and words of one partition, each in hash order."""
    counts, of_words = {}, lots if word_lots is None else word_lots
    with shuffle.folder.filling() as folder:
        for table, reduce, own in (("titles", titles.reduce, lots), ("words", vocabulary.reduce, of_words)):
            rows = shuffle.gather([f"{table}-{lot}" for lot in own], partition)
            counts[table] = reduce(rows, folder / f"{table}-{partition:04d}.parquet")
    return counts


# -- pages -> what teaches the linker


def pick_teaching(piece: Piece, folder: Location, choice: Choice) -> Found:
    """The articles of one shard that may teach."""
    target = folder / f"teaching-{piece.name}.parquet"
    return {"articles": teaching.pick(piece.shard, target, choice, piece.keys)}


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


def moved_pages(item: tuple[Location, Keys], titles_moved: pa.Array) -> Found:
    """Pages that stay as they are, and have a link that leads elsewhere now."""
    return {"keys": find_moved(*item, titles_moved)}


def count_piece(
    piece: Piece,
    shuffle: Shuffle,
    names: Part,
    words: Vocabulary,
    num_entities: int,
    window: int,
    taught: Choice,
    earlier: Earlier | None = None,
) -> Found:
    """Follow the links of some pages; spill mentions, page words, link words and edges between entities.

    Pages that are gone are counted as the earlier corpus did, and taken out.
    """
    is_gone = earlier is not None and piece.sign < 0
    index = Names(earlier.corpus if earlier and is_gone else names)
    counts = Counter(tokens=0, links=0, dead_links=0)
    mentions: Counter[tuple[str, int]] = Counter()
    pairs: dict[str, list[cooccurrence.Pairs]] = {table: [] for table in TABLES}
    for lot in read_lots(piece.shard, piece.keys):
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
    name = f"mentions-{piece.name}"
    cells = {table: cooccurrence.rows(pairs[table]) for table in TABLES}
    links_found = priors.rows(mentions)
    if earlier and is_gone:
        links_found = rename_entities(links_found, earlier, "entity")
        cells = {table: rename_entities(rows, earlier, *ENTITY_COLUMNS[table]) for table, rows in cells.items()}
    shuffle.spill(name, _signed(links_found, piece.sign, "count"))
    for table, rows in cells.items():
        signed = _signed(rows, piece.sign, "count")
        shuffle.spill_by_id(f"{table}-{piece.name}", signed, num_ids=num_entities)
    return {"lots": [name], "counts": {key: piece.sign * count for key, count in counts.items()}}


def carry_cells(item: tuple[str, int, int], shuffle: Shuffle, earlier: Earlier, num_entities: int) -> Found:
    """What an earlier corpus has counted for a range of its entities."""
    table, start, end = item
    counted = WordCounts(earlier.corpus, table)
    first, last = int(counted.offsets[start]), int(counted.offsets[end])
    columns = {
        "entity": np.repeat(np.arange(start, end), np.diff(counted.offsets[start : end + 1])),
        "word": counted.words[first:last].astype(np.int64),
        "count": counted.counts[first:last].astype(np.int64),
    }
    name = f"{table}-earlier-{start:010d}"
    rows = rename_entities(pa.table(columns), earlier, *ENTITY_COLUMNS[table])
    shuffle.spill_by_id(name, rows, num_ids=num_entities)
    return {"lots": [name]}


def carry_anchors(item: tuple[int, int], shuffle: Shuffle, earlier: Earlier) -> Found:
    """Links that an earlier corpus has counted, of a range of its mentions."""
    start, end = item
    counted = Csr(earlier.corpus, ANCHORS, ANCHOR_COLUMNS)
    mention = np.repeat(np.arange(start, end), np.diff(counted.offsets[start : end + 1]))
    cells = slice(int(counted.offsets[start]), int(counted.offsets[end]))
    entities, counts = (column[cells] for column in counted.columns)
    mentions = read_strings(earlier.corpus.path, "mentions").take(pa.array(mention))
    rows = priors.link_rows(earlier.corpus.array("mentions.hashes")[mention], mentions, entities, counts)
    name = f"mentions-earlier-{start:010d}"
    shuffle.spill(name, rename_entities(rows, earlier, "entity"))
    return {"lots": [name]}


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
    links: Sequence[str],
    mentions: Sequence[str],
    tables: Mapping[str, Sequence[str]],
    num_entities: int,
    rule: MergeRule,
    uniform_sources: Sequence[int],
) -> Found:
    """One partition of the mention table, from links and from further `mentions`, and of every CSR array."""
    with (shuffle.folder / "pieces").filling() as folder:
        anchors = priors.add_up(shuffle.gather(links, partition))
        target = folder / f"mentions-{partition:04d}"
        rows = pa.concat_tables([anchors, shuffle.gather(mentions, partition)])
        found = priors.reduce(rows, target, rule=rule, uniform_sources=uniform_sources)
        priors.write_anchors(folder / f"{ANCHORS}-{partition:04d}", anchors, found)
        occurrences.write_sequences(target, found)
        for table, lots in tables.items():
            entities = shuffle.ids(partition, num_ids=num_entities)
            cooccurrence.reduce(shuffle.gather(lots, partition), entities, folder / f"{table}-{partition:04d}")
    return {"mentions": len(found)}


# -- pages -> where mentions stand, now that it is known what they are


def spill_occurrences(piece: Piece, shuffle: Shuffle, sequences: Part, known: Known, taught: Choice) -> Found:
    """The mentions in the text of some pages. Those that are gone were counted only for mentions that were known."""
    rows = occurrences.rows(piece.shard, SequenceIndex(sequences.path), taught, piece.keys)
    if piece.sign < 0:
        rows = rows.filter(pa.array(known.is_known[rows["mention"].to_numpy()]))
    name = f"occurrences-{piece.name}"
    shuffle.spill_by_id(name, _signed(rows, piece.sign, "pages", "linked_pages"), num_ids=known.num_mentions)
    return {"lots": [name], "mentions": rows.num_rows}


def spill_fresh_occurrences(piece: Piece, shuffle: Shuffle, sequences: Part, known: Known, taught: Choice) -> Found:
    """The mentions that were not known before, in the text of pages that stay."""
    rows = occurrences.rows(piece.shard, SequenceIndex(sequences.path), taught, piece.keys)
    rows = rows.set_column(0, "mention", pa.array(known.fresh[rows["mention"].to_numpy()]))
    name = f"occurrences-fresh-{piece.name}"
    shuffle.spill_by_id(name, rows, num_ids=known.num_mentions)
    return {"lots": [name], "mentions": rows.num_rows}


def reduce_occurrences(partition: int, shuffle: Shuffle, lots: Sequence[str], num_mentions: int) -> Found:
    """One partition of the counts of occurrences."""
    mentions = shuffle.ids(partition, num_ids=num_mentions)
    with (shuffle.folder / "counts").filling() as folder:
        occurrences.reduce(shuffle.gather(lots, partition), mentions, folder / f"occurrences-{partition:04d}")
    return {"mentions": len(mentions)}
