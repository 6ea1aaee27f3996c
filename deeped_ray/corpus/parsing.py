"""Dump -> parsed pages, merged titles and word frequencies: the part `pages`."""

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.corpus import entities
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.pages import write_pages
from deeped_ray.corpus.shuffle import gather, spill_by_hash
from deeped_ray.corpus.wikidump import DumpError, DumpShard, DumpStats, SiteInfo, cut_dump, read_shard, read_siteinfo
from deeped_ray.corpus.wikiextractor import read_docs
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running.progress import Progress
from deeped_ray.running.tasks import peak_memory_gib, run_tasks, spread
from deeped_ray.storage.location import Location
from deeped_ray.text import is_content_word, words_of
from deeped_ray.types import Page

logger = logging.getLogger(__name__)


def parse_dump(config: CorpusConfig, work: Location) -> float:
    """Parse every shard that an earlier run has not finished; returns the most memory that a worker took, in GiB."""
    sites = {path: read_siteinfo(path) for path in config.dumps()}
    shards = [shard for path in sites for shard in cut_dump(path, shard_bytes=config.shard_bytes)]
    progress = Progress("parse", "bytes of dump", sum(shard.num_bytes for shard in shards))
    todo = []
    finished = set(work.glob("finished-*.json"))
    for number, shard in enumerate(shards):
        if _finished(work, number) in finished:
            progress.skip(shard.num_bytes)
        else:
            todo.append((number, shard, sites[shard.path]))
    num_pages, peak = 0, 0.0
    for (_, shard, _), (parsed, memory) in spread(
        _parse_shard, todo, work, config.num_partitions(), config.memory_bytes // 32
    ):
        num_pages, peak = num_pages + parsed, max(peak, memory)
        progress.advance(shard.num_bytes, note=f"{num_pages:,} pages, workers up to {peak:.2f} GiB")
    damage = [where for file in work.glob("finished-*.json") for where in file.read_json()["damage"]]
    for where in damage:
        logger.warning("skipped a damaged stretch of %s", where)
    if damage and config.strict:
        raise DumpError(
            f"{len(damage)} stretches of the dump are damaged, the first in {damage[0]}. Fetch it again, or run without --strict."
        )
    return peak


def _parse_shard(
    item: tuple[int, DumpShard, SiteInfo], work: Location, num_partitions: int, batch_characters: int
) -> tuple[int, float]:
    """Task: parse one shard, a batch of pages at a time; returns its number of pages and the worker's peak memory."""
    number, shard, site = item
    stats = DumpStats()
    totals: Counter[str] = Counter()
    pages = (
        read_docs(shard, stats) if site.is_extracted else (parse_page(raw, site) for raw in read_shard(shard, stats))
    )
    for batch_number, batch in enumerate(_batches(pages, batch_characters)):
        name = f"{number:06d}-{batch_number:04d}"
        words = _count_words(page for page in batch if page.redirect is None and not page.is_disambiguation)
        write_pages(work / f"pages-{name}.parquet", batch)
        spill_by_hash(work / f"titles-{name}.arrow", entities.title_rows(batch), num_partitions)
        table = pa.table(
            {
                "hash": hashes_of(list(words)),
                "word": pa.array(words, pa.string()),
                "count": pa.array(words.values(), pa.int64()),
            }
        )
        spill_by_hash(work / f"words-{name}.arrow", table, num_partitions)
        totals["pages"] += len(batch)
        totals["redirects"] += sum(page.redirect is not None for page in batch)
        totals["disambiguation_pages"] += sum(page.is_disambiguation for page in batch)
        totals["links"] += sum(len(page.links) for page in batch)
    totals["skipped_other_namespaces"] = stats.num_other_namespaces
    totals["skipped_pages_without_title"] = len(stats.untitled_page_ids)
    _finished(work, number).write_json({**totals, "damage": stats.damage})
    return totals["pages"], peak_memory_gib()


def _count_words(pages: Iterable[Page]) -> dict[str, int]:
    """Content words with their number; each distinct word is looked at once, however often it occurs."""
    counts: Counter[str] = Counter()
    for page in pages:
        counts.update(words_of(page.title))
        counts.update(words_of(page.text))
    return {word: count for word, count in counts.items() if is_content_word(word)}


def _finished(work: Location, number: int) -> Location:
    """The last file that a parse task writes."""
    return work / f"finished-{number:06d}.json"


def _batches(pages: Iterable[Page], max_characters: int) -> Iterator[list[Page]]:
    """A file that cannot be cut may hold a whole Wikipedia: its pages are dealt with by the lot."""
    batch: list[Page] = []
    size = 0
    for page in pages:
        batch.append(page)
        size += len(page.text) + 100
        if size >= max_characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def collect_pages(config: CorpusConfig, work: Location, folder: Path) -> float:
    """Put the parsed shards into the pages part, with merged titles and word frequencies."""
    total: Counter[str] = Counter({"pages": 0})
    damage: list[str] = []
    for file in work.glob("finished-*.json"):
        summary = file.read_json()
        damage += summary.pop("damage")
        total.update(summary)
    if total["pages"] == 0:
        raise DumpError(
            f"{', '.join(path.name for path in config.dumps())} contains no pages.{f' {damage[0]}' if damage else ''}"
        )
    if total["skipped_pages_without_title"]:
        logger.warning("skipped %d pages without a title", total["skipped_pages_without_title"])
    titles, words, merged = work.glob("titles-*.arrow"), work.glob("words-*.arrow"), work / "merged"
    merged.make_folder()
    peak = run_tasks("merge", "partitions", _merge_partition, range(config.num_partitions()), titles, words, merged)
    for file in [*work.glob("pages-*.parquet"), *merged.glob("*.parquet")]:
        _link_or_copy(file, folder / file.name)
    articles = read_siteinfo(config.dumps()[0]).articles
    Location(folder / "summary.json").write_json({**total, "damaged_stretches": damage, "articles": articles})
    return peak


def _merge_partition(partition: int, titles: list[Location], words: list[Location], merged: Location) -> float:
    """Task: distinct titles and words of one partition, each in hash order."""
    table = gather(words, partition).group_by(["hash", "word"], use_threads=False).aggregate([("count", "sum")])
    table = table.rename_columns({"count_sum": "count"}).sort_by([("hash", "ascending"), ("word", "ascending")])
    with merged.filling() as folder:
        entities.merge_titles(titles, partition, folder / f"titles-{partition:04d}.parquet")
        pq.write_table(table, folder / f"words-{partition:04d}.parquet", compression="zstd")
    return peak_memory_gib()


def _link_or_copy(source: Location, target: Path) -> None:
    if source.path is None:
        source.fetch(target)
        return
    try:
        os.link(source.path, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy(source.path, target)
