"""Dump -> knowledge base, on Ray: the parts `pages` (parsed text and links) and `corpus` (catalogue, priors, counts).

Two passes: parsing needs nothing but a page's own markup; counting needs the finished catalogue to know where a link
leads. Between them the pages lie in Parquet shards, each read by one task.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.artifacts import KnowledgeBase, Part, fingerprint
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, link_words, page_words, write_counts
from deeped_ray.corpus.entities import CatalogueDraft, PageHeader, draft_catalogue, write_catalogue
from deeped_ray.corpus.pages import page_shards, read_pages, write_pages
from deeped_ray.corpus.priors import write_priors
from deeped_ray.corpus.strings import hash_order, write_strings
from deeped_ray.corpus.wikidump import DumpStats, RawPage, read_dump
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.mini import MINI_DUMP
from deeped_ray.progress import Progress
from deeped_ray.spread import spread
from deeped_ray.text import normalize_mention, tokenize
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How a dump becomes a corpus."""

    dump: Annotated[
        tuple[str, ...],
        "MediaWiki export XML, plain, .bz2 or .gz; default: the mini encyclopedia that ships with deeped-ray",
    ] = ()
    min_word_count: Annotated[int, "a word must occur this often in the dump to enter the vocabulary"] = 10
    link_window: Annotated[
        int, "words around a hyperlink that count as co-occurring with its entity, half on each side"
    ] = 20
    pages_per_shard: Annotated[int, "pages parsed by one Ray task"] = 1000

    def __post_init__(self) -> None:
        if self.min_word_count < 1 or self.link_window < 2 or self.pages_per_shard < 1:
            raise DeepEdError("--min-word-count and --pages-per-shard must be at least 1, --link-window at least 2.")

    def dumps(self) -> list[Path]:
        return [Path(path) for path in self.dump] or [MINI_DUMP]


def build_corpus(kb: KnowledgeBase, config: CorpusConfig) -> dict[str, Any]:
    """Make the parts that are missing or would come out differently; returns what the knowledge base now holds."""
    summary: dict[str, Any] = {}
    pages_config = {"dumps": [fingerprint(path) for path in config.dumps()]}
    if not kb.is_current("pages", config=pages_config, parents=[]):
        with kb.write("pages", config=pages_config, parents=[]) as folder:
            summary |= _parse_dumps(config, folder)
    counts_config = {"min_word_count": config.min_word_count, "link_window": config.link_window}
    if not kb.is_current("corpus", config=counts_config, parents=["pages"]):
        with kb.write("corpus", config=counts_config, parents=["pages"]) as folder:
            _count(kb.open("pages"), config, folder)
    corpus = kb.open("corpus")
    return {**json.loads((corpus.path / "summary.json").read_text()), **summary}


# -- first pass: parse


def _parse_dumps(config: CorpusConfig, folder: Path) -> dict[str, Any]:
    stats = DumpStats()
    raw_pages = (page for path in config.dumps() for page in read_dump(path, stats))
    progress = Progress("parse", "pages")
    word_counts: Counter[str] = Counter()
    shards = (
        (folder / f"pages-{number:06d}.parquet", batch)
        for number, batch in enumerate(_batches(raw_pages, config.pages_per_shard))
    )
    for (_, batch), counts in spread(_parse_shard, shards):
        word_counts.update(counts)
        progress.advance(len(batch))
    progress.finish()
    if stats.untitled_page_ids:
        logger.warning(
            "skipped %d pages without a title, page ids %s ...",
            len(stats.untitled_page_ids),
            stats.untitled_page_ids[:5],
        )
    table = pa.table({"word": list(word_counts), "count": pa.array(word_counts.values(), pa.int64())}).sort_by("word")
    pq.write_table(table, folder / "words.parquet")
    return {
        "skipped_pages_without_title": len(stats.untitled_page_ids),
        "skipped_other_namespaces": stats.num_other_namespaces,
    }


def _parse_shard(shard: tuple[Path, list[RawPage]]) -> Counter[str]:
    """Task: parse pages into one Parquet file; return the word counts of the articles."""
    path, raw_pages = shard
    pages = [parse_page(raw) for raw in raw_pages]
    write_pages(path, pages)
    return Counter(word for page in pages if not page.is_disambiguation for word in page_words(page))


# -- second pass: count


@dataclass(frozen=True)
class _ShardCounts:
    mentions: Counter[tuple[str, int]]
    page_words: dict[int, Counter[int]]
    link_words: dict[int, Counter[int]]
    num_links: Counter[int]
    num_words: Counter[int]
    num_dead_links: int


def _count(pages: Part, config: CorpusConfig, folder: Path) -> None:
    shards = page_shards(pages)
    headers = [
        PageHeader(**row)
        for shard in shards
        for row in pq.read_table(shard, columns=list(PageHeader._fields)).to_pylist()
    ]
    catalogue = draft_catalogue(headers)
    if not catalogue.titles:
        raise DeepEdError("The dump has no article: only redirects, disambiguation pages or other namespaces.")
    vocabulary = _vocabulary(pages, min_count=config.min_word_count, folder=folder)
    total = _ShardCounts(Counter(), {}, {}, Counter(), Counter(), 0)
    num_dead_links = 0
    progress = Progress("count", "pages", len(headers))
    # Titles and redirects are names of their entity too, worth one link each.
    total.mentions.update((normalize_mention(title), entity_id) for title, entity_id in catalogue.title_to_id.items())
    for _, counts in spread(_count_shard, shards, catalogue, vocabulary, config.link_window):
        total.mentions.update(counts.mentions)
        total.num_links.update(counts.num_links)
        total.num_words.update(counts.num_words)
        num_dead_links += counts.num_dead_links
        for source, target in ((counts.page_words, total.page_words), (counts.link_words, total.link_words)):
            for entity_id, words in source.items():
                target.setdefault(entity_id, Counter()).update(words)
        progress.advance(min(config.pages_per_shard, len(headers) - progress.done))
    num_entities = len(catalogue.titles)
    write_catalogue(
        folder,
        catalogue,
        num_links=[total.num_links[entity_id] for entity_id in range(num_entities)],
        num_words=[total.num_words[entity_id] for entity_id in range(num_entities)],
    )
    write_priors(folder, total.mentions)
    write_counts(folder, PAGE_WORDS, total.page_words, num_entities=num_entities)
    write_counts(folder, LINK_WORDS, total.link_words, num_entities=num_entities)
    summary = {
        "pages": len(headers),
        "redirects": sum(header.redirect is not None for header in headers),
        "disambiguation_pages": sum(header.is_disambiguation for header in headers),
        "entities": num_entities,
        "links": total.num_links.total(),
        "dead_links": num_dead_links,
        "mentions": len({mention for mention, _ in total.mentions}),
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def _count_shard(shard: Path, catalogue: CatalogueDraft, vocabulary: dict[str, int], window: int) -> _ShardCounts:
    """Task: follow the links of one shard and count mentions and words per entity."""
    result = _ShardCounts(Counter(), {}, {}, Counter(), Counter(), 0)
    num_dead_links = 0
    for page in read_pages(shard):
        tokens = list(tokenize(page.text))
        for link in page.links:
            entity_id = catalogue.title_to_id.get(link.target)
            if entity_id is None:
                num_dead_links += 1
                continue
            result.mentions[normalize_mention(page.text[link.start : link.end]), entity_id] += 1
            result.num_links[entity_id] += 1
            if not page.is_disambiguation:
                _add_words(result.link_words, entity_id, link_words(tokens, link, window=window), vocabulary)
        entity_id = catalogue.title_to_id.get(page.title) if page.redirect is None else None
        if entity_id is not None and not page.is_disambiguation:
            result.num_words[entity_id] += len(tokens)
            _add_words(result.page_words, entity_id, page_words(page), vocabulary)
    return _ShardCounts(
        result.mentions, result.page_words, result.link_words, result.num_links, result.num_words, num_dead_links
    )


def _add_words(
    counts: dict[int, Counter[int]], entity_id: int, words: Iterable[str], vocabulary: dict[str, int]
) -> None:
    counts.setdefault(entity_id, Counter()).update(vocabulary[word] for word in words if word in vocabulary)


def _vocabulary(pages: Part, *, min_count: int, folder: Path) -> dict[str, int]:
    """Words frequent enough to count, by id; written as the corpus vocabulary with their frequencies."""
    table = pq.read_table(pages.path / "words.parquet").to_pydict()
    frequent = [(word, count) for word, count in zip(table["word"], table["count"], strict=True) if count >= min_count]
    if not frequent:
        raise DeepEdError(f"No word of the dump occurs {min_count} times. Lower --min-word-count.")
    frequent = [frequent[row] for row in hash_order([word for word, _ in frequent])]
    words = [word for word, _ in frequent]
    write_strings(folder, "vocabulary", words)
    np.save(folder / "vocabulary.counts.npy", np.array([count for _, count in frequent], dtype=np.int64))
    return {word: word_id for word_id, word in enumerate(words)}


def _batches(items: Iterator[RawPage], size: int) -> Iterator[list[RawPage]]:
    while batch := list(islice(items, size)):
        yield batch
