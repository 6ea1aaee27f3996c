"""Dump -> knowledge base, on Ray: the parts `pages` (parsed text and links) and `corpus` (catalogue, priors, counts).

    parse     one task per shard of the dump: pages with text and links as Parquet; titles and words spilled by hash
    merge     one task per partition: distinct titles; distinct words with their frequencies
    resolve   driver: redirects, and which titles are entities, in numpy arrays
    count     one task per parsed shard: where its links lead; mentions, words and edges spilled by partition
    reduce    one task per partition: pieces of the mention table and of the CSR arrays, joined by the driver

Every task writes whole files into the run's folder; after a kill the same command goes on with those that are
missing. No process holds more than a shard, a partition, or a few numbers per title, and the result does not depend on
how the dump is cut.
"""

import functools
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.artifacts import NEW_RUN, KnowledgeBase, Part, ResumeConfig, fingerprint
from deeped_ray.corpus import cooccurrence, entities, priors
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS
from deeped_ray.corpus.pages import page_shards, read_pages, write_pages
from deeped_ray.corpus.shuffle import (
    concatenate_arrays,
    concatenate_offsets,
    gather,
    partition_of_hashes,
    partition_of_ids,
    read_summary,
    spill,
)
from deeped_ray.corpus.strings import StringIndex, hashes_of, write_hashed_strings
from deeped_ray.corpus.wikidump import (
    DumpError,
    DumpShard,
    DumpStats,
    SiteInfo,
    cut_dump,
    find_dumps,
    read_shard,
    read_siteinfo,
)
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.mini import MINI_DUMP
from deeped_ray.progress import Progress
from deeped_ray.spread import spread
from deeped_ray.text import content_words, normalize_mention
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)

GRAPH = "links"


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How a dump becomes a corpus."""

    dump: Annotated[
        tuple[str, ...],
        "MediaWiki export XML, plain, .bz2 (multistream or not) or .gz, path or glob; default: the mini encyclopedia that ships with deeped-ray",
    ] = ()
    min_word_count: Annotated[int, "a word must occur this often in the dump to enter the vocabulary"] = 10
    link_window: Annotated[
        int, "words around a hyperlink that count as co-occurring with its entity, half on each side"
    ] = 20
    min_links_without_page: Annotated[
        int, "a title without a page is an entity if it is linked this often; 0: never"
    ] = 2
    shard_mb: Annotated[float, "megabytes of dump, as on disk, per task"] = 4.0
    partitions: Annotated[int, "reduce tasks; more of them means less memory each"] = 16
    strict: Annotated[bool, "fail when a stretch of the dump is damaged, instead of skipping it"] = False

    def __post_init__(self) -> None:
        if (
            min(self.min_word_count, self.partitions) < 1
            or self.shard_mb <= 0
            or self.link_window < 2
            or self.min_links_without_page < 0
        ):
            raise DeepEdError(
                "--min-word-count and --partitions must be at least 1, --shard-mb positive, --link-window at least 2, --min-links-without-page at least 0."
            )

    def dumps(self) -> list[Path]:
        return find_dumps(self.dump) if self.dump else [MINI_DUMP]


def build_corpus(kb: KnowledgeBase, config: CorpusConfig, resume: ResumeConfig = NEW_RUN) -> dict[str, Any]:
    """Make the parts that are missing or would come out differently; returns what the knowledge base now holds."""
    pages_config = {"dumps": [fingerprint(path) for path in config.dumps()]}
    counts_config = {
        "min_word_count": config.min_word_count,
        "link_window": config.link_window,
        "min_links_without_page": config.min_links_without_page,
    }
    cut = [config.shard_mb, config.partitions]
    if not kb.is_current("pages", config=pages_config, parents=[]):
        with kb.write("pages", config=pages_config, parents=[]) as folder:
            work = resume.folder(kb, "parse", [pages_config, cut])
            _parse(config, work)
            _collect_pages(config, work, folder)
        shutil.rmtree(work)
    if not kb.is_current("corpus", config=counts_config, parents=["pages"]):
        with kb.write("corpus", config=counts_config, parents=["pages"]) as folder:
            pages = kb.open("pages")
            work = resume.folder(kb, "count", [pages.id, counts_config, cut])
            _count(pages, config, work, folder)
        shutil.rmtree(work)
    return {**_read_json(kb.open("pages").path / "summary.json"), **_read_json(kb.open("corpus").path / "summary.json")}


# -- parse


def _parse(config: CorpusConfig, work: Path) -> None:
    """Parse every shard that an earlier run has not finished."""
    sites = {path: read_siteinfo(path) for path in config.dumps()}
    shards = [shard for path in sites for shard in cut_dump(path, shard_bytes=max(1, int(config.shard_mb * 2**20)))]
    total = sum(shard.num_bytes for shard in shards)
    progress = Progress("parse", "bytes of dump", total)
    todo = []
    for number, shard in enumerate(shards):
        if (work / f"words-{number:06d}.arrow").exists():  # the last file that a task writes
            progress.skip(shard.num_bytes)
        else:
            todo.append((number, shard, sites[shard.path]))
    num_pages = 0
    for (_, shard, _), parsed in spread(_parse_shard, todo, work, config.partitions):
        num_pages += parsed
        progress.advance(shard.num_bytes, note=f"{num_pages:,} pages")
    damage = [where for path in sorted(work.glob("words-*.arrow")) for where in read_summary(path)["damage"]]
    for where in damage:
        logger.warning("skipped a damaged stretch of %s", where)
    if damage and config.strict:
        raise DumpError(
            f"{len(damage)} stretches of the dump are damaged, the first in {damage[0]}. Fetch it again, or run without --strict."
        )


def _parse_shard(item: tuple[int, DumpShard, SiteInfo], work: Path, num_partitions: int) -> int:
    """Task: parse one shard; returns its number of pages."""
    number, shard, site = item
    stats = DumpStats()
    pages = [parse_page(raw, site) for raw in read_shard(shard, stats)]
    articles = [page for page in pages if page.redirect is None and not page.is_disambiguation]
    words = Counter(word for page in articles for word in content_words(page.title) + content_words(page.text))
    write_pages(work / f"pages-{number:06d}.parquet", pages)
    _spill_by_hash(work / f"titles-{number:06d}.arrow", entities.title_rows(pages), num_partitions)
    summary = {
        "pages": len(pages),
        "redirects": sum(page.redirect is not None for page in pages),
        "disambiguation_pages": sum(page.is_disambiguation for page in pages),
        "links": sum(len(page.links) for page in pages),
        "skipped_other_namespaces": stats.num_other_namespaces,
        "skipped_pages_without_title": len(stats.untitled_page_ids),
        "damage": stats.damage,
    }
    table = pa.table(
        {
            "hash": hashes_of(list(words)),
            "word": pa.array(words, pa.string()),
            "count": pa.array(words.values(), pa.int64()),
        }
    )
    _spill_by_hash(work / f"words-{number:06d}.arrow", table, num_partitions, summary)
    return len(pages)


def _collect_pages(config: CorpusConfig, work: Path, folder: Path) -> None:
    """Put the parsed shards into the pages part, with merged titles and word frequencies."""
    spilled = sorted(work.glob("words-*.arrow"))
    summaries = [read_summary(path) for path in spilled]
    total = {name: sum(summary[name] for summary in summaries) for name in summaries[0] if name != "damage"}
    damage = [where for summary in summaries for where in summary["damage"]]
    if total["pages"] == 0:
        raise DumpError(
            f"{', '.join(path.name for path in config.dumps())} contains no pages.{f' {damage[0]}' if damage else ''}"
        )
    if total["skipped_pages_without_title"]:
        logger.warning("skipped %d pages without a title", total["skipped_pages_without_title"])
    for path in sorted(work.glob("pages-*.parquet")):
        _link_or_copy(path, folder / path.name)
    titles = sorted(work.glob("titles-*.arrow"))
    merged = [folder / f"titles-{partition:04d}.parquet" for partition in range(config.partitions)]
    _run_tasks("merge", _merge_partition, list(enumerate(merged)), titles, spilled)
    (folder / "summary.json").write_text(json.dumps({**total, "damaged_stretches": damage}))


def _merge_partition(item: tuple[int, Path], titles: list[Path], words: list[Path]) -> None:
    """Task: distinct titles and words of one partition, each in hash order."""
    partition, target = item
    entities.merge_titles(titles, partition, target)
    table = gather(words, partition).group_by(["hash", "word"], use_threads=False).aggregate([("count", "sum")])
    table = table.rename_columns({"count_sum": "count"}).sort_by([("hash", "ascending"), ("word", "ascending")])
    pq.write_table(table, target.with_name(target.name.replace("titles-", "words-")), compression="zstd")


# -- count


def _count(pages: Part, config: CorpusConfig, work: Path, folder: Path) -> None:
    titles = pq.read_table(sorted(pages.path.glob("titles-*.parquet")))
    resolution = entities.resolve(titles, min_links_without_page=config.min_links_without_page)
    num_entities = len(resolution.row_of_entity)
    if not num_entities:
        raise DeepEdError("The dump has no article: only redirects, disambiguation pages or other namespaces.")
    entities.write_names(folder, titles, resolution)
    num_words = _write_vocabulary(pages, config.min_word_count, folder)
    _spill_names(titles, resolution, config.partitions, work)

    shards = page_shards(pages)
    progress = Progress("count", "bytes of pages", sum(shard.stat().st_size for shard in shards))
    todo = [shard for shard in shards if not (work / f"{GRAPH}-{shard.stem}.arrow").exists()]
    progress.skip(sum(shard.stat().st_size for shard in set(shards) - set(todo)))
    for shard, _ in spread(_count_shard, todo, work, folder, num_entities, config.link_window, config.partitions):
        progress.advance(shard.stat().st_size)
    summaries = [read_summary(work / f"{GRAPH}-{shard.stem}.arrow") for shard in shards]

    pieces = work / "pieces"
    pieces.mkdir(exist_ok=True)
    _run_tasks("reduce", _reduce_partition, range(config.partitions), work, pieces, num_entities, config.partitions)
    _join_pieces(pieces, folder, config.partitions)
    page_offsets, page_counts = (
        np.load(folder / f"{PAGE_WORDS}.offsets.npy"),
        np.load(folder / f"{PAGE_WORDS}.counts.npy"),
    )
    in_links = np.bincount(
        np.load(folder / f"{GRAPH}.words.npy"), weights=np.load(folder / f"{GRAPH}.counts.npy"), minlength=num_entities
    )
    page_words = np.add.reduceat(np.append(page_counts, 0), page_offsets[:-1]) * (np.diff(page_offsets) > 0)
    entities.write_entities(
        folder, titles, resolution, num_links=in_links.astype(np.int64), num_words=page_words.astype(np.int64)
    )
    summary = {
        "entities": num_entities,
        "entities_without_page": num_entities - resolution.num_pages,
        "linked_targets": int(np.count_nonzero(titles["num_links"].to_numpy())),
        "followed_links": sum(found["links"] for found in summaries),
        "dead_links": sum(found["dead_links"] for found in summaries),
        "mentions": len(np.load(folder / "mentions.hashes.npy", mmap_mode="r")),
        "vocabulary": num_words,
        "tokens": sum(found["tokens"] for found in summaries),
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def _spill_names(titles: pa.Table, resolution: entities.Resolution, num_partitions: int, work: Path) -> None:
    """Titles and redirects enter the mention table beside the links."""
    rows = np.flatnonzero(resolution.entity_of_row >= 0)
    names = priors.title_mentions(
        titles["title"].take(pa.array(rows)).to_pylist(), resolution.entity_of_row[rows].tolist()
    )
    _spill_by_hash(work / "mentions-titles.arrow", names, num_partitions)


def _count_shard(shard: Path, work: Path, corpus: Path, num_entities: int, window: int, num_partitions: int) -> None:
    """Task: follow the links of one shard; spill mentions, page words, link words and edges between entities."""
    vocabulary = _vocabulary(corpus)
    names = _Names(corpus)
    mentions: Counter[tuple[str, int]] = Counter()
    page_pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    link_pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    edges: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    num_tokens = num_links = num_dead_links = 0
    for page in read_pages(shard):
        if page.redirect is not None:
            continue
        targets = np.array([names.entity(link.target) for link in page.links], dtype=np.int64)
        followed = targets[targets >= 0]
        links = [link for link, target in zip(page.links, targets, strict=True) if target >= 0]
        num_links += len(links)
        num_dead_links += len(page.links) - len(links)
        mentions.update(
            (normalize_mention(page.text[link.start : link.end]), int(target))
            for link, target in zip(links, followed, strict=True)
        )
        if page.is_disambiguation:
            continue
        own = names.entity(page.title)
        tokens = cooccurrence.tokenize_to_ids(page.text, vocabulary)
        num_tokens += len(tokens.ids)
        if links:
            position, words = cooccurrence.link_words(tokens, links, window=window)
            link_pairs.append((followed[position], words))
        if own >= 0:
            title_ids = [vocabulary[word] for word in content_words(page.title) if word in vocabulary]
            ids = np.concatenate([tokens.ids[tokens.ids >= 0], np.array(title_ids, dtype=np.int64)])
            page_pairs.append((np.full(len(ids), own), ids))
            edges.append((np.full(len(followed), own), followed))
    rows = priors.mention_rows({key: float(count) for key, count in mentions.items() if key[0]})
    _spill_by_hash(work / f"mentions-{shard.stem}.arrow", rows, num_partitions)
    summary = {"tokens": num_tokens, "links": num_links, "dead_links": num_dead_links}
    for name, pairs in ((PAGE_WORDS, page_pairs), (LINK_WORDS, link_pairs), (GRAPH, edges)):
        nothing = np.array([], dtype=np.int64)
        first, second = (np.concatenate(column) for column in zip(*pairs, strict=True)) if pairs else (nothing, nothing)
        table = cooccurrence.count_pairs(first, second)
        partitions = partition_of_ids(table["entity"].to_numpy(), num_entities, num_partitions)
        spill(work / f"{name}-{shard.stem}.arrow", table, partitions, num_partitions, summary)


def _reduce_partition(partition: int, work: Path, pieces: Path, num_entities: int, num_partitions: int) -> None:
    """Task: one partition of the mention table and of every CSR array."""
    priors.reduce_mentions(sorted(work.glob("mentions-*.arrow")), partition, pieces, f"mentions-{partition:04d}")
    first, last = (-(-border * num_entities // num_partitions) for border in (partition, partition + 1))
    for name in (PAGE_WORDS, LINK_WORDS, GRAPH):
        cooccurrence.reduce_counts(
            sorted(work.glob(f"{name}-*.arrow")), partition, first, last, pieces / f"{name}-{partition:04d}"
        )


def _join_pieces(pieces: Path, folder: Path, num_partitions: int) -> None:
    """Partitions follow each other in hash and entity order, so joining is appending."""

    def pieces_of(name: str, suffix: str) -> list[Path]:
        return [pieces / f"{name}-{partition:04d}.{suffix}" for partition in range(num_partitions)]

    for name in (PAGE_WORDS, LINK_WORDS, GRAPH):
        concatenate_offsets(pieces_of(name, "offsets.npy"), folder / f"{name}.offsets.npy")
        for suffix in ("words.npy", "counts.npy"):
            concatenate_arrays(pieces_of(name, suffix), folder / f"{name}.{suffix}")
    concatenate_offsets(pieces_of("mentions", "offsets.npy"), folder / "mentions.offsets.npy")
    for suffix in ("entities.npy", "counts.npy"):
        concatenate_arrays(pieces_of("mentions", suffix), folder / f"mentions.{suffix}")
    strings = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in pieces_of("mentions", "arrow")]
    hashes = np.concatenate([np.load(path) for path in pieces_of("mentions", "hashes.npy")])
    write_hashed_strings(folder, "mentions", hashes, pa.concat_tables(strings)["string"])


class _Names:
    """Title -> entity id, by the sorted hashes of the corpus part being written; collisions were ruled out by `resolve`."""

    def __init__(self, corpus: Path) -> None:
        self._index = StringIndex(corpus, "titles")
        self._entities = np.load(corpus / "titles.entities.npy", mmap_mode="r")
        self._found: dict[str, int] = {}

    def entity(self, title: str) -> int:
        if title not in self._found:
            row = self._index.find(title)
            self._found[title] = -1 if row is None else int(self._entities[row])
        return self._found[title]


@functools.lru_cache(maxsize=1)
def _vocabulary(corpus: Path) -> dict[str, int]:
    """Word -> id; kept by a worker for the shards that follow."""
    with pa.memory_map(str(corpus / "vocabulary.arrow")) as source:
        words = pa.ipc.open_file(source).read_all()["string"].to_pylist()
    return {word: word_id for word_id, word in enumerate(words)}


def _write_vocabulary(pages: Part, min_count: int, folder: Path) -> int:
    """Content words frequent enough to count, in hash order, with their frequencies."""
    table = pq.read_table(sorted(pages.path.glob("words-*.parquet")), filters=[("count", ">=", min_count)])
    if not table.num_rows:
        raise DeepEdError(f"No word of the dump occurs {min_count} times. Lower --min-word-count.")
    write_hashed_strings(folder, "vocabulary", table["hash"].to_numpy(), table["word"])
    np.save(folder / "vocabulary.counts.npy", table["count"].to_numpy())
    return int(table.num_rows)


# -- files and tasks


def _run_tasks(stage: str, function: Callable[..., None], items: Iterable[Any], *shared: Any) -> None:
    todo = list(items)
    progress = Progress(stage, "partitions", len(todo))
    for _ in spread(function, todo, *shared):
        progress.advance()


def _spill_by_hash(path: Path, table: pa.Table, num_partitions: int, summary: dict[str, Any] | None = None) -> None:
    spill(path, table, partition_of_hashes(table["hash"].to_numpy(), num_partitions), num_partitions, summary)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy(source, target)


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content
