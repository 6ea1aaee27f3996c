"""What the tasks of each pass over the corpus do; `ingest` says in which order.

A task writes whole files, under names that depend on its item alone: a task that is run again writes the same ones. It
returns what it has counted.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from deeped_ray.corpus.shuffle import Partition, Shuffle, Spilled
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
from deeped_ray.knowledge.parts import Part, seal
from deeped_ray.knowledge.strings import read_strings
from deeped_ray.storage.arrays import save_array
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location, link_or_copy
from deeped_ray.types import Page

Item = TypeVar("Item")
TITLES, WORDS, MENTIONS, OCCURRENCES = "titles", "words", "mentions", "occurrences"
"""What is spilled, beside links (ANCHORS) and the tables of `cooccurrence`: files are named after it."""
Found = dict[str, Any]
"""What a task returns. `spilled` names the files that reducers read: they do not read what a glob finds."""


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
        return {**found, **_take_over([parsed.file(lot) for lot in found["lots"]], number, shuffle)}
    stats, counts, lots, spilled = DumpStats(), Counter[str](), list[str](), Spilled()
    for place, lot in enumerate(_lots(_pages_of(shard, stats), lot_characters, size=lambda page: len(page.text))):
        lots.append(f"{number:06d}-{place:04d}")
        spilled |= _spill_pages(lots[-1], lot, shuffle, with_words=parsed is None)
        counts.update(_counts_of(lot))
    counts["skipped_other_namespaces"] = stats.num_other_namespaces
    counts["skipped_pages_without_title"] = len(stats.untitled_page_ids)
    untitled = stats.untitled_page_ids[:20]
    found = {"lots": lots, "counts": counts, "damage": stats.damage, "untitled": untitled, "digest": digest}
    return {**found, "spilled": spilled}


def _take_over(files: Sequence[Location], number: int, shuffle: Shuffle) -> Found:
    """Lots of an earlier dump, under the number that their shard has now."""
    lots, spilled = list[str](), Spilled()
    for file in files:
        lots.append(f"{number:06d}-{file.stem.rpartition('-')[2]}")
        with (shuffle.folder / f"pages-{lots[-1]}.parquet").writing() as path:
            link_or_copy(file, path)
        spilled |= shuffle.spill(f"titles-{lots[-1]}", titles.rows(list(read_pages(file))))
    return {"lots": lots, "spilled": spilled}


def count_words(piece: Piece, shuffle: Shuffle) -> Found:
    """The words of pages that are new, or gone."""
    rows = vocabulary.rows(read_pages(piece.shard, piece.keys))
    return {"spilled": shuffle.spill(f"words-{piece.name}", _signed(rows, piece.sign, "count"))}


def carry_words(file: Location, shuffle: Shuffle) -> Found:
    """The words of an earlier dump."""
    return {"spilled": shuffle.spill(f"words-earlier-{file.stem}", file.reading(read_table))}


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


def _spill_pages(name: str, lot: Sequence[Page], shuffle: Shuffle, *, with_words: bool = True) -> Spilled:
    write_pages(shuffle.folder / f"pages-{name}.parquet", lot)
    return _spill_words(name, lot, shuffle, with_words=with_words)


def _spill_words(name: str, lot: Sequence[Page], shuffle: Shuffle, *, with_words: bool = True) -> Spilled:
    spilled = shuffle.spill(f"titles-{name}", titles.rows(lot))
    return spilled | shuffle.spill(f"words-{name}", vocabulary.rows(lot)) if with_words else spilled


def _counts_of(lot: Sequence[Page]) -> Counter[str]:
    return Counter(
        pages=len(lot),
        redirects=sum(page.redirect is not None for page in lot),
        disambiguation_pages=sum(page.is_disambiguation for page in lot),
        links=sum(len(page.links) for page in lot),
    )


def reread_pages(shard: Location, shuffle: Shuffle) -> Found:
    """A lot of pages that is kept: its titles and words enter the tables anew, beside those of other lots."""
    name, lot = shard.stem.removeprefix("pages-"), list(read_pages(shard))
    return {"lots": [name], "counts": _counts_of(lot), "damage": [], "spilled": _spill_words(name, lot, shuffle)}


def reread_own(shard: Location, shuffle: Shuffle, changed: Sequence[str]) -> Found:
    """A lot of entities that is kept, without those that were changed since."""
    name, gone = shard.stem.removeprefix("pages-"), frozenset(changed)
    lot = [page for page in read_pages(shard) if page.title.partition("#")[0] not in gone]
    if not lot:
        return {"lots": [], "counts": {}, "damage": [], "spilled": {}}
    spilled, counts = _spill_pages(name, lot, shuffle), _counts_of(lot)
    own_entities.filtered(shard.parent / f"{name}.parquet", shuffle.folder / f"{name}.parquet", gone)
    counts["own_entities"] = sum(page.page_id >= 0 and page.redirect is None for page in lot)
    return {"lots": [name], "counts": counts, "damage": [], "spilled": spilled}


def parse_entities(item: tuple[int, Location], shuffle: Shuffle, lot_characters: int) -> Found:
    """Read one file of entities, a lot at a time: as pages, and a table of what else they have."""
    number, file = item
    counts, lots, spilled = Counter[str](), list[str](), Spilled()
    entities = read_entities(file, is_strict=number != own_entities.FOLDED)
    by_size = _lots(entities, lot_characters, size=lambda entity: sum(len(page.text) for page in entity.pages()))
    for place, lot in enumerate(by_size):
        lots.append(f"own-{number:06d}-{place:04d}")
        pages = [page for entity in lot for page in entity.pages()]
        spilled |= _spill_pages(lots[-1], pages, shuffle)
        counts.update(_counts_of(pages))
        own_entities.write(shuffle.folder / f"{lots[-1]}.parquet", lot)
        counts.update(
            own_entities=len(lot),
            own_names=sum(len(entity.aliases) for entity in lot),
            examples=sum(len(entity.examples) for entity in lot),
            shortened_entities=sum(entity.is_shortened for entity in lot),
        )
    return {"lots": lots, "counts": counts, "damage": [], "spilled": spilled}


def merge_partition(place: int, partitions: Sequence[Partition], shuffle: Shuffle) -> Found:
    """The distinct titles or words of one partition, in hash order."""
    partition, count = partitions[place], 0
    reduce = {TITLES: titles.reduce, WORDS: vocabulary.reduce}[partition.table]
    with (shuffle.folder / f"{partition.name}.parquet").writing() as path, contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for each in shuffle.slices(partition):
            merged = reduce(each.rows)
            writer = writer or stack.enter_context(pq.ParquetWriter(path, merged.schema, compression="zstd"))
            writer.write_table(merged)
            count += merged.num_rows
    return {"rows": count}


def seal_files(files: Sequence[Location]) -> Found:
    """The checksums of files that are to be part of a knowledge base."""
    return {"checksums": [seal(file) for file in files]}


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
    return {"spilled": shuffle.spill(lot, priors.title_rows(found, entities))}


def spill_aliases(file: Location, shuffle: Shuffle, names: Part) -> Found:
    """The names of some entities from files: they enter the mention table with their counts."""
    return {"spilled": shuffle.spill(f"mentions-{file.stem}", own_entities.alias_rows(file, Names(names)))}


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
    cells = {table: cooccurrence.rows(pairs[table]) for table in TABLES}
    links_found = priors.rows(mentions)
    if earlier and is_gone:
        links_found = rename_entities(links_found, earlier, "entity")
        cells = {table: rename_entities(rows, earlier, *ENTITY_COLUMNS[table]) for table, rows in cells.items()}
    spilled = shuffle.spill(f"{ANCHORS}-{piece.name}", _signed(links_found, piece.sign, "count"))
    for table, rows in cells.items():
        signed = _signed(rows, piece.sign, "count")
        spilled |= shuffle.spill(f"{table}-{piece.name}", signed, num_keys=num_entities)
    return {"spilled": spilled, "counts": {key: piece.sign * count for key, count in counts.items()}}


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
    return {"spilled": shuffle.spill(name, rows, num_keys=num_entities)}


def carry_anchors(item: tuple[int, int], shuffle: Shuffle, earlier: Earlier) -> Found:
    """Links that an earlier corpus has counted, of a range of its mentions."""
    start, end = item
    counted = Csr(earlier.corpus, ANCHORS, ANCHOR_COLUMNS)
    mention = np.repeat(np.arange(start, end), np.diff(counted.offsets[start : end + 1]))
    cells = slice(int(counted.offsets[start]), int(counted.offsets[end]))
    entities, counts = (column[cells] for column in counted.columns)
    mentions = read_strings(earlier.corpus.path, "mentions").take(pa.array(mention))
    rows = priors.link_rows(earlier.corpus.array("mentions.hashes")[mention], mentions, entities, counts)
    return {"spilled": shuffle.spill(f"{ANCHORS}-earlier-{start:010d}", rename_entities(rows, earlier, "entity"))}


def spill_source(item: tuple[int, int, SourceShard], shuffle: Shuffle, names: Part, page_ids: Ids) -> Found:
    """One shard of a further source of priors, by the lot."""
    source, place, shard = item
    counts, spilled = Counter[str](), Spilled()
    for number, lot in enumerate(prior_sources.count_lots(shard, Names(names), page_ids, counts)):
        name = f"mentions-source-{source:03d}-{place:06d}-{number:04d}"
        spilled |= shuffle.spill(name, priors.rows(lot, source=source))
    return {"spilled": spilled, "counts": counts}


def reduce_partition(
    place: int, partitions: Sequence[Partition], shuffle: Shuffle, rule: MergeRule, uniform_sources: Sequence[int]
) -> Found:
    """Pieces of one partition of the mention table, or of a CSR array; returns their names and numbers of rows."""
    partition, pieces = partitions[place], dict[str, int]()
    with (shuffle.folder / "pieces").filling() as folder:
        for number, each in enumerate(shuffle.slices(partition)):
            target = folder / f"{partition.name}.{number}"
            if partition.table == MENTIONS:
                pieces[target.name] = _reduce_mentions(target, each.sets, rule, uniform_sources)
            else:
                cooccurrence.reduce(each.rows, each.keys, target)
                pieces[target.name] = len(each.keys)
    return {"pieces": pieces}


def _reduce_mentions(target: Path, sets: Sequence[pa.Table], rule: MergeRule, uniform_sources: Sequence[int]) -> int:
    """From links, and from titles, aliases and further sources."""
    links, others = sets
    anchors = priors.add_up(links)
    rows = pa.concat_tables([anchors, others])
    found = priors.reduce(rows, target, rule=rule, uniform_sources=uniform_sources)
    priors.write_anchors(Path(f"{target}.{ANCHORS}"), anchors, found)
    occurrences.write_sequences(target, found)
    return len(found)


def join_table(item: tuple[str, Sequence[str]], folder: Location, num_entities: int) -> Found:
    """One of the tables of `cooccurrence` from its pieces, and its sums by entity if the catalogue has them."""
    table, names = item
    with (folder / "pieces").fetched(f"{table}-*") as there, (folder / "joined").filling() as made:
        pieces = [there / name for name in names]
        cooccurrence.join(pieces, made / table)
        if table in cooccurrence.TOTALS.values():
            save_array(folder / f"totals-{table}.npy", cooccurrence.totals(pieces, table, num_entities))
        return {"files": {file.name: seal(Location(file)) for file in sorted(made.iterdir())}}


# -- pages -> where mentions stand, now that it is known what they are


def spill_occurrences(piece: Piece, shuffle: Shuffle, sequences: Part, known: Known, taught: Choice) -> Found:
    """The mentions in the text of some pages. Those that are gone were counted only for mentions that were known."""
    rows = occurrences.rows(piece.shard, SequenceIndex(sequences.path), taught, piece.keys)
    if piece.sign < 0:
        rows = rows.filter(pa.array(known.is_known[rows["mention"].to_numpy()]))
    signed = _signed(rows, piece.sign, "pages", "linked_pages")
    return {"spilled": shuffle.spill(f"occurrences-{piece.name}", signed, num_keys=known.num_mentions)}


def spill_fresh_occurrences(piece: Piece, shuffle: Shuffle, sequences: Part, known: Known, taught: Choice) -> Found:
    """The mentions that were not known before, in the text of pages that stay."""
    rows = occurrences.rows(piece.shard, SequenceIndex(sequences.path), taught, piece.keys)
    rows = rows.set_column(0, "mention", pa.array(known.fresh[rows["mention"].to_numpy()]))
    return {"spilled": shuffle.spill(f"occurrences-fresh-{piece.name}", rows, num_keys=known.num_mentions)}


def reduce_occurrences(place: int, partitions: Sequence[Partition], shuffle: Shuffle) -> Found:
    """Pieces of one partition of the counts of occurrences."""
    partition, pieces = partitions[place], dict[str, int]()
    with (shuffle.folder / "counts").filling() as folder:
        for number, each in enumerate(shuffle.slices(partition)):
            target = folder / f"{partition.name}.{number}"
            occurrences.reduce(each.rows, each.keys, target)
            pieces[target.name] = len(each.keys)
    return {"pieces": pieces}
