"""Parsed pages -> entity catalogue, p(e|m), word-entity counts and hyperlink graph: the part `corpus`."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deeped_ray.corpus import cooccurrence, entities, heldout, occurrences, priors
from deeped_ray.corpus.config import LOT, CorpusConfig
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.pages import page_shards, read_pages
from deeped_ray.corpus.prior_sources import SourceShard, cut_source, read_shard
from deeped_ray.corpus.shuffle import partition_of_ids, read_summary, spill, spill_by_hash
from deeped_ray.knowledge.parts import Part, share
from deeped_ray.knowledge.strings import StringIndex, read_strings, write_hashed_strings
from deeped_ray.running.progress import Progress
from deeped_ray.running.tasks import peak_memory_gib, run_tasks, spread
from deeped_ray.storage.arrays import concatenate_arrays, concatenate_offsets, save_array
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.text import content_words, normalize_mention, normalize_title
from deeped_ray.types import DeepEdError

GRAPH = "links"


def count_corpus(pages: Part, config: CorpusConfig, work: Location, folder: Path) -> float:
    num_partitions = config.num_partitions()
    titles = _read_tables(pages.files("titles-*.parquet"))
    resolution = entities.resolve(titles, min_links_without_page=config.min_links_without_page)
    num_entities = len(resolution.row_of_entity)
    if not num_entities:
        raise DeepEdError("The dump has no article: only redirects, disambiguation pages or other namespaces.")
    entities.write_names(folder, titles, resolution)
    is_person = entities.persons_of(titles, resolution)
    if config.persons:
        is_person[_read_persons(Location(config.persons), folder)] = True
    num_words = _write_vocabulary(pages, config.min_word_count, folder)
    lots = [*range(0, len(read_strings(folder, "titles")), LOT)]
    names = share("names", folder, work, ("titles.*", "vocabulary.*"))
    peaks = [run_tasks("names", "lots of titles", _spill_names, lots, work, names, num_partitions)]
    page_ids = titles["page_id"].to_numpy()[resolution.row_of_entity[: resolution.num_pages]]
    save_array(work / "page_ids.npy", page_ids)

    shards = page_shards(pages)
    shared = (work, names, num_entities, config.link_window, num_partitions)
    peaks.append(
        _over_shards("count", _count_shard, shards, lambda shard: work / f"{GRAPH}-{shard.stem}.arrow", *shared)
    )
    summaries = [read_summary(work / f"{GRAPH}-{shard.stem}.arrow") for shard in shards]
    external = _read_sources(config, work, names)

    pieces = work / "pieces"
    pieces.make_folder()
    uniform = [number for number, source in enumerate(config.sources(), start=1) if source.is_uniform]
    merging = (config.merge_priors, uniform)
    peaks.append(
        run_tasks(
            "reduce",
            "partitions",
            _reduce_partition,
            range(num_partitions),
            work,
            pieces,
            num_entities,
            num_partitions,
            merging,
        )
    )
    with pieces.fetched() as found:
        _join_pieces(found, folder, num_partitions)
    peaks.append(_count_occurrences(shards, work, pieces, folder, num_partitions))
    num_held_out = heldout.join(work.glob("heldout-*.parquet"), folder)
    page_offsets, page_counts = (
        np.load(folder / f"{PAGE_WORDS}.offsets.npy"),
        np.load(folder / f"{PAGE_WORDS}.counts.npy"),
    )
    in_links = np.bincount(
        np.load(folder / f"{GRAPH}.words.npy"), weights=np.load(folder / f"{GRAPH}.counts.npy"), minlength=num_entities
    )
    page_words = np.add.reduceat(np.append(page_counts, 0), page_offsets[:-1]) * (np.diff(page_offsets) > 0)
    entities.write_entities(
        folder,
        titles,
        resolution,
        num_links=in_links.astype(np.int64),
        num_words=page_words.astype(np.int64),
        is_person=is_person,
    )
    summary = {
        "entities": num_entities,
        "entities_without_page": num_entities - resolution.num_pages,
        "persons": int(is_person.sum()),
        "linked_targets": int(np.count_nonzero(titles["num_links"].to_numpy())),
        "followed_links": sum(found["links"] for found in summaries),
        "dead_links": sum(found["dead_links"] for found in summaries),
        "held_out_links": num_held_out,
        "mentions": len(np.load(folder / "mentions.hashes.npy", mmap_mode="r")),
        "vocabulary": num_words,
        "tokens": sum(found["tokens"] for found in summaries),
        **external,
        "articles": pages.summary()["articles"],
    }
    Location(folder / "summary.json").write_json(summary)
    return max(peaks)


def _over_shards(
    stage: str, task: Callable[..., float], shards: list[Location], target: Callable[[Location], Location], *shared: Any
) -> float:
    """Run a task for every shard of pages whose target an earlier run has not left; returns the largest peak of memory."""
    found = shards[0].parent.sizes()
    sizes = {shard: found[shard.name] for shard in shards}
    finished = set(target(shards[0]).parent.glob("*"))
    missing = [shard for shard in shards if target(shard) not in finished]
    progress = Progress(stage, "bytes of pages", sum(sizes.values()))
    progress.skip(sum(sizes.values()) - sum(sizes[shard] for shard in missing))
    peak = 0.0
    for shard, memory in spread(task, missing, *shared):
        peak = max(peak, memory)
        progress.advance(sizes[shard], note=f"workers up to {peak:.2f} GiB")
    return peak


def _read_tables(files: Sequence[Location], **options: Any) -> pa.Table:
    return pa.concat_tables([file.reading(lambda source: read_table(source, **options)) for file in files])


def _read_persons(path: Location, folder: Path) -> list[int]:
    """Entities of the titles in a file, after redirects."""
    names = _Names(folder)
    found = {names.entity(normalize_title(line)) for line in read_lines(path)} - {-1}
    if not found:
        raise DeepEdError(f"{path} names no entity of the dump. Expected one title of a person a line.")
    return sorted(found)


def _spill_names(start: int, work: Location, names: Part, num_partitions: int) -> float:
    """Task: titles and redirects enter the mention table beside the links."""
    titles = read_strings(names.path, "titles").slice(start, LOT).to_pylist()
    found = names.array("titles.entities")[start : start + LOT].tolist()
    spill_by_hash(work / f"mentions-titles-{start:010d}.arrow", priors.title_mentions(titles, found), num_partitions)
    return peak_memory_gib()


def _count_shard(
    shard: Location, work: Location, shared: Part, num_entities: int, window: int, num_partitions: int
) -> float:
    """Task: follow the links of one shard; spill mentions, page words, link words and edges between entities."""
    vocabulary = _vocabulary(shared.path)
    names = _Names(shared.path)
    mentions: Counter[tuple[str, int]] = Counter()
    page_pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    link_pairs: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    edges: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    held_out: list[heldout.Row] = []
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
            is_held_out = np.array([heldout.is_held_out(page.title, link) for link in links])
            held_out += heldout.rows_of(page, tokens, links, followed, is_held_out)
            kept = [link for link, is_out in zip(links, is_held_out, strict=True) if not is_out]
            position, words = cooccurrence.link_words(tokens, kept, window=window)
            link_pairs.append((followed[~is_held_out][position], words))
        if own >= 0:
            title_ids = [vocabulary[word] for word in content_words(page.title) if word in vocabulary]
            ids = np.concatenate([tokens.ids[tokens.ids >= 0], np.array(title_ids, dtype=np.int64)])
            page_pairs.append((np.full(len(ids), own), ids))
            edges.append((np.full(len(followed), own), followed))
    rows = priors.mention_rows({key: float(count) for key, count in mentions.items() if key[0]})
    spill_by_hash(work / f"mentions-{shard.stem}.arrow", rows, num_partitions)
    heldout.write(work / f"heldout-{shard.stem}.parquet", held_out)
    summary = {"tokens": num_tokens, "links": num_links, "dead_links": num_dead_links}
    for name, pairs in ((PAGE_WORDS, page_pairs), (LINK_WORDS, link_pairs), (GRAPH, edges)):
        nothing = np.array([], dtype=np.int64)
        first, second = (np.concatenate(column) for column in zip(*pairs, strict=True)) if pairs else (nothing, nothing)
        table = cooccurrence.count_pairs(first, second)
        partitions = partition_of_ids(table["entity"].to_numpy(), num_entities, num_partitions)
        spill(work / f"{name}-{shard.stem}.arrow", table, partitions, num_partitions, summary)
    return peak_memory_gib()


def _read_sources(config: CorpusConfig, work: Location, names: Part) -> dict[str, int]:
    """Spill the counts of every further source of priors; returns how many of them led to an entity."""
    shards = [
        (number, place, shard)
        for number, source in enumerate(config.sources(), start=priors.ANCHORS + 1)
        for place, shard in enumerate(cut_source(source, shard_bytes=8 * config.shard_bytes))
    ]
    if not shards:
        return {}
    total: Counter[str] = Counter(prior_counts=0, prior_counts_without_entity=0, unreadable_prior_lines=0)
    progress = Progress("sources", "shards", len(shards))
    todo = [item for item in shards if not _finished(work, *item[:2]).exists()]
    progress.skip(len(shards) - len(todo))
    for _ in spread(_spill_source, todo, work, names, config.num_partitions()):
        progress.advance()
    for number, place, _ in shards:
        total.update(_finished(work, number, place).read_json())
    return dict(total)


def _spill_source(item: tuple[int, int, SourceShard], work: Location, shared: Part, num_partitions: int) -> None:
    """Task: the mentions of one shard, spilled by the lot."""
    source, place, shard = item
    names, page_ids = _Names(shared.path), np.load((work / "page_ids.npy").local())
    total: Counter[str] = Counter()
    counts: defaultdict[tuple[str, int], float] = defaultdict(float)
    lot = 0

    def spill_lot() -> None:
        nonlocal lot
        path = work / f"mentions-source-{source:03d}-{place:06d}-{lot:04d}.arrow"
        spill_by_hash(path, priors.mention_rows(counts, source=source), num_partitions)
        counts.clear()
        lot += 1

    for found in read_shard(shard):
        if found is None:
            total["unreadable_prior_lines"] += 1
            continue
        entity = names.entity(found.title) if found.title else -1
        if entity < 0 <= found.page_id:  # articles are numbered by page id
            place_of_id = int(np.searchsorted(page_ids, found.page_id))
            is_known = place_of_id < len(page_ids) and page_ids[place_of_id] == found.page_id
            entity = place_of_id if is_known else -1
        total["prior_counts" if entity >= 0 else "prior_counts_without_entity"] += 1
        if entity >= 0:
            counts[found.mention, entity] += found.support
        if len(counts) >= LOT:
            spill_lot()
    spill_lot()
    _finished(work, source, place).write_json(total)


def _finished(work: Location, source: int, place: int) -> Location:
    return work / f"finished-source-{source:03d}-{place:06d}.json"


def _reduce_partition(
    partition: int,
    work: Location,
    pieces: Location,
    num_entities: int,
    num_partitions: int,
    merging: tuple[priors.MergeRule, list[int]],
) -> float:
    """Task: one partition of the mention table and of every CSR array."""
    rule, uniform = merging
    first, last = (-(-border * num_entities // num_partitions) for border in (partition, partition + 1))
    with pieces.filling() as folder:
        mentions = f"mentions-{partition:04d}"
        files = work.glob("mentions-*.arrow")
        priors.reduce_mentions(files, partition, folder, mentions, rule=rule, uniform_sources=uniform)
        occurrences.write_pieces(f"{folder}/{mentions}", read_strings(folder, mentions).to_pylist())
        for name in (PAGE_WORDS, LINK_WORDS, GRAPH):
            target = folder / f"{name}-{partition:04d}"
            cooccurrence.reduce_counts(work.glob(f"{name}-*.arrow"), partition, first, last, target)
    return peak_memory_gib()


def _join_pieces(pieces: Path, folder: Path, num_partitions: int) -> None:
    """Partitions follow each other in hash and entity order, so joining is appending."""

    def pieces_of(name: str, suffix: str) -> list[Path]:
        return [pieces / f"{name}-{partition:04d}.{suffix}" for partition in range(num_partitions)]

    for name in (PAGE_WORDS, LINK_WORDS, GRAPH):
        concatenate_offsets(pieces_of(name, "offsets.npy"), folder / f"{name}.offsets.npy")
        for suffix in ("words.npy", "counts.npy"):
            concatenate_arrays(pieces_of(name, suffix), folder / f"{name}.{suffix}")
    concatenate_offsets(pieces_of("mentions", "offsets.npy"), folder / "mentions.offsets.npy")
    for suffix in ("entities.npy", "priors.npy", "counts.npy"):
        concatenate_arrays(pieces_of("mentions", suffix), folder / f"mentions.{suffix}")
    names = [f"mentions-{partition:04d}" for partition in range(num_partitions)]
    hashes = np.concatenate([np.load(pieces / f"{name}.hashes.npy") for name in names])
    write_hashed_strings(folder, "mentions", hashes, pa.chunked_array([read_strings(pieces, name) for name in names]))
    priors.join_folded([pieces / name for name in names], folder)
    sizes = [len(np.load(pieces / f"{name}.hashes.npy", mmap_mode="r")) for name in names]
    occurrences.join_pieces([f"{pieces}/{name}" for name in names], np.cumsum([0, *sizes]).tolist(), folder)


def _count_occurrences(
    shards: list[Location], work: Location, pieces: Location, folder: Path, num_partitions: int
) -> float:
    """How often mentions stand in the text: a second pass, since only now it is known what they are."""
    num_mentions = len(np.load(folder / "mentions.hashes.npy", mmap_mode="r"))
    sequences = share("sequences", folder, work, SequenceIndex.FILES)
    shared = (work, sequences, num_mentions, num_partitions)
    peak = _over_shards("occurrences", _spill_occurrences, shards, lambda shard: _occurrences_of(shard, work), *shared)
    items = list(range(num_partitions))
    reducing = ("reduce", "partitions", _reduce_occurrences, items, work, pieces, num_mentions, num_partitions)
    peak = max(peak, run_tasks(*reducing))
    with pieces.fetched() as found:
        for name in ("pages", "linked_pages"):
            counts = [found / f"occurrences-{partition:04d}.{name}.npy" for partition in range(num_partitions)]
            concatenate_arrays(counts, folder / f"mentions.{name}.npy")
    return peak


def _spill_occurrences(
    shard: Location, work: Location, sequences: Part, num_mentions: int, num_partitions: int
) -> float:
    """Task: the mentions in the text of one shard."""
    table = occurrences.count_shard(shard, SequenceIndex(sequences.path))
    partitions = partition_of_ids(table["mention"].to_numpy(), num_mentions, num_partitions)
    spill(_occurrences_of(shard, work), table, partitions, num_partitions)
    return peak_memory_gib()


def _reduce_occurrences(
    partition: int, work: Location, pieces: Location, num_mentions: int, num_partitions: int
) -> float:
    """Task: one partition of the counts of occurrences."""
    first, last = (-(-border * num_mentions // num_partitions) for border in (partition, partition + 1))
    with pieces.filling() as folder:
        prefix = f"{folder}/occurrences-{partition:04d}"
        occurrences.reduce_counts(work.glob("occurrences-*.arrow"), partition, first, last, prefix)
    return peak_memory_gib()


def _occurrences_of(shard: Location, work: Location) -> Location:
    return work / f"occurrences-{shard.stem}.arrow"


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
    return {word: word_id for word_id, word in enumerate(read_strings(corpus, "vocabulary").to_pylist())}


def _write_vocabulary(pages: Part, min_count: int, folder: Path) -> int:
    """Content words frequent enough to count, in hash order, with their frequencies."""
    table = _read_tables(pages.files("words-*.parquet"), filters=[("count", ">=", min_count)])
    if not table.num_rows:
        raise DeepEdError(f"No word of the dump occurs {min_count} times. Lower --min-word-count.")
    write_hashed_strings(folder, "vocabulary", table["hash"].to_numpy(), table["word"])
    np.save(folder / "vocabulary.counts.npy", table["count"].to_numpy())
    return int(table.num_rows)
