"""Dump -> knowledge base, on Ray: the parts `pages` (parsed text and links) and `corpus` (catalogue, priors, counts).

    entities             one task per file of entities: each as a page, names beside them
    parse                one task per shard of the dump: pages with text and links; titles and words spilled by hash
    combine              where there is much: files of several tasks become one (`shuffle`); after every pass that spills
    merge                one task per partition: distinct titles; distinct words with their frequencies
    teach                one task per parsed shard: articles whose links teach the linker, and are not counted
    (the driver)         decides which words the vocabulary has
    redirects ... index titles      one task per partition, in several passes: titles that are entities (`resolving`)
    names                one task per lot of titles: titles and redirects as mentions
    aliases              one task per lot of entities from files: their names as mentions, with counts
    count                one task per parsed shard: where its links lead; mentions, words and edges spilled by partition
    sources              one task per shard of every further source of priors
    reduce               one task per partition: pieces of the mention table and of the CSR arrays
    (the driver)         joins the pieces
    occurrences          one task per parsed shard: on which pages mentions stand, and on which as a link
    reduce occurrences   one task per partition: on how many

With an earlier version, only pages that are gone or new are counted, and the rest is carried over (`update`, `updating`).

After a kill, the same command goes on with the tasks that have left no receipt. No process holds more than a shard, a
partition, or a few numbers per title, and the result does not depend on how the dump is cut.
"""

import functools
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from deeped_ray.corpus import (
    catalogue,
    cooccurrence,
    occurrences,
    own_entities,
    passes,
    priors,
    teaching,
    vocabulary,
)
from deeped_ray.corpus.config import LOT, CorpusConfig
from deeped_ray.corpus.cooccurrence import TABLES
from deeped_ray.corpus.entity_files import MAX_ALIASES
from deeped_ray.corpus.folded import Folded
from deeped_ray.corpus.inputs import Inputs
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.own_entities import FOLDED, is_folded, is_own
from deeped_ray.corpus.pages import page_shards
from deeped_ray.corpus.passes import Found
from deeped_ray.corpus.persons import read_persons
from deeped_ray.corpus.prior_sources import COUNTS, cut_sources
from deeped_ray.corpus.resolving import Entities, Taken, resolve
from deeped_ray.corpus.shuffle import Partition, Shuffle, combined, of_table, spilled_by
from deeped_ray.corpus.teaching import Choice
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.update import (
    ANCHOR_COLUMNS,
    ANCHORS,
    SHARDS,
    WORTH_SHARE,
    Difference,
    Known,
    Parsed,
    Piece,
    digest_of,
)
from deeped_ray.corpus.updating import Before, Update
from deeped_ray.corpus.wikidump import OWN_ARTICLES, DumpError, DumpShard, cut_dump
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Recorded
from deeped_ray.knowledge.csr import join_csr
from deeped_ray.knowledge.parts import Part, share
from deeped_ray.running import tasks
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.running.tasks import Outcome
from deeped_ray.storage.location import Location, link_or_copy

logger = logging.getLogger(__name__)
_READERS = 8
"""Shards of a dump that are hashed at once."""


def build_corpus(
    kb: KnowledgeBase,
    config: CorpusConfig,
    resume: ResumeConfig = NEW_RUN,
    *,
    changes: Sequence[Recorded] = (),
    earlier: KnowledgeBase | None = None,
) -> dict[str, Any]:
    """Make the parts that are missing or would come out differently; returns what the knowledge base now holds.

    With `changes`, the pages that it has are kept, and these changes folded into them.
    `earlier` is a version made from another dump. Its vocabulary and teaching articles are kept, and of its pages and
    counts all that has not changed.
    """
    inputs = Inputs.find(config, last=kb.last("pages"), changes=changes)
    cut = [config.shard_bytes, config.memory_bytes, config.partitions]
    peaks = [0.0]
    before = Before.of(earlier) if earlier else None
    if not kb.is_current("pages", config=inputs.pages_identity, parents=[]) and not _keep_pages(
        kb, config, inputs, before
    ):
        with kb.write("pages", config=inputs.pages_identity, parents=[]) as folder:
            work = resume.folder(kb, "parse", [inputs.pages_identity, cut, before and before.pages.id])
            peaks.append(_make_pages(config, inputs, work, folder, before))
        work.remove()
    identity = inputs.corpus_identity
    if not kb.is_current("corpus", config=identity, parents=["pages"]):
        identity = {**identity, "kept": before.kept} if before else identity
    if not kb.is_current("corpus", config=identity, parents=["pages"]):
        with kb.write("corpus", config=identity, parents=["pages"]) as folder:
            pages = kb.open("pages")
            work = resume.folder(kb, "count", [pages.id, identity, cut, before and before.corpus.id])
            peaks.append(_make_corpus(pages, config, inputs, work, folder, before))
        work.remove()
    if max(peaks) > config.memory_gib:
        logger.warning("a worker took %.2f GiB, more than `memory_gib` %g", max(peaks), config.memory_gib)
    return {
        **kb.open("pages").summary(),
        **kb.open("corpus").summary(),
        **({"peak_worker_gib": round(max(peaks), 2), "memory_gib": config.memory_gib} if any(peaks) else {}),
    }


# -- the part `pages`


def _shards(config: CorpusConfig, inputs: Inputs) -> list[DumpShard]:
    return [shard for dump in inputs.dumps for shard in cut_dump(dump, shard_bytes=config.shard_bytes)]


def _keep_pages(kb: KnowledgeBase, config: CorpusConfig, inputs: Inputs, before: Before | None) -> bool:
    """Whether the dump has the same bytes as the earlier one, whose pages are then kept."""
    if before is None or "pages" not in kb or kb.open("pages").id != before.pages.id:
        return False
    own = {*inputs.pages_identity, *before.pages.config} - {"dumps"}
    if any(inputs.pages_identity.get(name) != before.pages.config.get(name) for name in own):
        return False
    if not _are_same(_shards(config, inputs), Parsed.of(before.pages).digests):
        return False
    kb.keep("pages", parents=[], config=inputs.pages_identity)
    return True


def _are_same(shards: Sequence[DumpShard], digests: Sequence[str]) -> bool:
    """Here, and without Ray: to start it takes longer than to read a dump of a gigabyte. It ends with the first difference."""
    if len(shards) != len(digests):
        return False
    with ThreadPoolExecutor(_READERS) as readers:
        for start in range(0, len(shards), _READERS):
            lot = slice(start, start + _READERS)
            if [*readers.map(digest_of, shards[lot])] != [*digests[lot]]:
                return False
    return True


def _make_pages(config: CorpusConfig, inputs: Inputs, work: Location, folder: Path, before: Before | None) -> float:
    """Returns the most memory that a worker took, in GiB."""
    run, lot_characters = _Runner(work), config.memory_bytes // 32
    shuffle = Shuffle(work, config.gathered_bytes, config.partitions)
    shards = _shards(config, inputs)
    files = [*enumerate(inputs.entities), *_folded_file(inputs, work)]
    own = run("entities", passes.parse_entities, files, shuffle, lot_characters, unit="files")
    there = page_shards(inputs.kept) if inputs.kept else []
    kept = [shard for shard in there if not is_own(shard)]
    reread = run("reread", passes.reread_pages, kept, shuffle, unit="lots of pages")
    lots_of_own = [shard for shard in there if is_own(shard) and inputs.keeps_entities and not is_folded(shard)]
    changed = [name for entity in inputs.folded.entities() for name in (entity.title, entity.id)]
    reread_own = run("reread own", passes.reread_own, lots_of_own, shuffle, changed, unit="lots")
    parsed = run(
        "parse",
        passes.parse_shard,
        list(enumerate(shards)),
        shuffle,
        lot_characters,
        Parsed.of(before.pages) if before else None,
        unit="bytes of dump",
        size=lambda item: item[1].num_bytes,
    )
    done = (own, reread, reread_own, parsed)
    summary = _summary_of(done, inputs, strict=config.strict)
    lots = [lot for each in done for found in each.results for lot in found["lots"]]
    spilled = spilled_by([found for each in done for found in each.results])
    if before:
        spilled |= spilled_by(_count_changed_words(before, lots, shuffle, run))
    plans = [shuffle.plan(table, of_table(table, spilled)) for table in (passes.TITLES, passes.WORDS)]
    partitions = combined(run, "combine", shuffle, plans)
    run("merge", passes.merge_partition, range(len(partitions)), partitions, shuffle, unit="partitions")
    made = [f"pages-{lot}" for each in (own, reread_own, parsed) for found in each.results for lot in found["lots"]]
    beside = [lot for each in (own, reread_own) for found in each.results for lot in found["lots"]]
    for name in [*made, *beside, *(partition.name for partition in partitions)]:
        link_or_copy(work / f"{name}.parquet", folder / f"{name}.parquet")
    for shard in kept:
        link_or_copy(shard, folder / shard.name)
    articles = inputs.kept.summary()["articles"] if inputs.kept else shards[0].site.articles if shards else OWN_ARTICLES
    inputs.folded.write(folder, with_rows=True)
    Location(folder / "summary.json").write_json({**summary, "articles": articles})
    known = Parsed.of(inputs.kept).shards if inputs.kept and SHARDS in inputs.kept.record["files"] else []
    fresh = [{name: value for name, value in found.items() if name != "spilled"} for found in parsed.results]
    Location(folder / SHARDS).write_json({"shards": fresh or known})
    return run.peak_gib


def _count_changed_words(before: Before, lots: Sequence[str], shuffle: Shuffle, run: "_Runner") -> list[Found]:
    """Tasks' results; what they have spilled adds up to the words of the dump."""
    fresh = [shuffle.folder / f"pages-{lot}.parquet" for lot in lots]
    difference = Difference.between(page_shards(before.pages), fresh)
    pieces = difference.pieces() if difference else [Piece(shard) for shard in fresh]
    counted = run("words", passes.count_words, pieces, shuffle, unit="shards of pages").results
    if difference:
        files = before.pages.files("words-*.parquet")
        counted += run("carry words", passes.carry_words, files, shuffle, unit="tables").results
    return counted


def _folded_file(inputs: Inputs, work: Location) -> list[tuple[int, Location]]:
    """The entities of changes as one more file."""
    lines = [json.dumps(entity.values()) for entity in inputs.folded.entities()]
    if not lines:
        return []
    (work / "changes.jsonl").write_bytes("\n".join(lines).encode())
    return [(FOLDED, work / "changes.jsonl")]


def _summary_of(done: Sequence[Outcome[Found]], inputs: Inputs, *, strict: bool) -> dict[str, Any]:
    """What all shards have counted; tells of damage and of pages that are left out."""
    total, earlier = _total(*done), inputs.kept.summary() if inputs.kept else {}
    damage = [where for each in done for found in each.results for where in found["damage"]]
    for where in damage:
        logger.warning("skipped a damaged stretch of %s", where)
    if damage and strict:
        raise DumpError(
            f"{len(damage)} stretches of the dump are damaged, the first in {damage[0]}."
            " Fetch it again, or run without `strict`."
        )
    others, untitled = total["skipped_other_namespaces"], total["skipped_pages_without_title"]
    ids = ", ".join(str(page_id) for each in done for found in each.results for page_id in found.get("untitled", ()))
    if not total["pages"]:
        names = ", ".join(file.name for file in [*inputs.dumps, *inputs.entities])
        why = [f"{others:,} of other namespaces"] * bool(others) + [f"{untitled:,} without a title ({ids})"] * bool(
            untitled
        )
        left_out = f" Left out: {', '.join(why)}." if why else ""
        raise DumpError(f"{names} contains no articles.{left_out}{f' {damage[0]}' if damage else ''}")
    if untitled:
        logger.warning("skipped %d pages without a title: %s", untitled, ids)
    if total["shortened_entities"]:
        logger.warning(
            "%d entities have more than %d aliases or examples, or a longer description: the rest is left out",
            *(total["shortened_entities"], MAX_ALIASES),
        )
    return {**earlier, "pages": total["pages"], **total, "damaged_stretches": earlier.get("damaged_stretches", damage)}


# -- the part `corpus`


def _make_corpus(
    pages: Part, config: CorpusConfig, inputs: Inputs, work: Location, folder: Path, before: Before | None
) -> float:
    """Returns the most memory that a worker took, in GiB."""
    run, shuffle = _Runner(work), Shuffle(work, config.gathered_bytes, config.partitions)
    shards = page_shards(pages)
    over_pages = functools.partial(run, unit="shards of pages")
    difference = Difference.between(page_shards(before.pages), shards) if before else None
    difference = difference if difference and difference.changed_share <= WORTH_SHARE else None
    everything = [Piece(shard) for shard in shards]

    # what teaches the linker, and is not counted
    num_links = pages.summary()["links"]
    num_taught = int(min(config.teaching_links, config.max_teaching_share * num_links))
    # articles differ in their links: among twice as many as are needed on average, some are left over
    choice = before.choice if before else Choice.at_most(min(2 * num_taught / max(num_links, 1), 1))
    read_again = [Piece(shard, keys) for shard, keys in difference.new.items()] if difference else everything
    picked = over_pages("teach", passes.pick_teaching, read_again, work, choice)
    if before is None:
        articles = (tuple(article) for found in picked.results for article in found["articles"])
        choice = teaching.cut(articles, choice, num_links=num_taught)
    taught_files = [work / f"teaching-{piece.name}.parquet" for piece in read_again]
    kept = before.corpus if before and difference else None
    without = difference.titles_gone() if difference else ()
    taught = teaching.join(taught_files, choice, folder, kept=kept, without=without)

    # what is an entity
    taken, removed = Taken.of(teaching.targets_of(taught)), Folded.read(pages).removed
    with resolve(
        pages.files("titles-*.parquet"),
        run,
        shuffle,
        folder,
        min_links_without_page=config.min_links_without_page,
        taken=taken,
        removed=removed,
    ) as entities:
        _count(pages, config, inputs, run, shuffle, folder, before, difference, choice, taught, entities)
    return run.peak_gib


def _count(
    pages: Part,
    config: CorpusConfig,
    inputs: Inputs,
    run: "_Runner",
    shuffle: Shuffle,
    folder: Path,
    before: Before | None,
    difference: Difference | None,
    choice: Choice,
    taught: pa.Table,
    entities: Entities,
) -> None:
    """All that is counted of entities."""
    work, num_entities = shuffle.folder, len(entities)
    over_pages = functools.partial(run, unit="shards of pages")
    everything = [Piece(shard) for shard in page_shards(pages)]
    words = (
        vocabulary.keep(before.corpus, folder)
        if before
        else vocabulary.join(pages, folder, min_count=config.min_word_count)
    )
    names = share("names", folder, work, ("titles.*",))
    is_person = entities.is_person.copy()
    if inputs.persons:
        is_person[read_persons(inputs.persons, Names(names))] = True
    page_ids = entities.page_ids[: entities.num_pages]

    # mentions, words and links of entities
    title_lots = range(0, entities.num_names, LOT)
    named = run("names", passes.spill_names, title_lots, shuffle, names, unit="lots of titles")
    update = Update.of(before, difference, entities, folder, over_pages) if before and difference else None
    pieces, earlier = (update.pieces, update.earlier) if update else (everything, None)
    counting = (shuffle, names, words, num_entities, config.link_window, choice, earlier)
    counted = over_pages("count", passes.count_piece, pieces, *counting)
    carried = update.carry(run, shuffle, num_entities) if update else []
    aliased = run("aliases", passes.spill_aliases, own_entities.files_of(pages), shuffle, names, unit="files")
    source_shards = cut_sources(inputs.sources, shard_bytes=8 * config.shard_bytes)
    sourced = run("sources", passes.spill_source, source_shards, shuffle, names, page_ids, unit="shards")
    spilled = spilled_by([*counted.results, *carried, *sourced.results, *named.results, *aliased.results])
    plans = [shuffle.plan(passes.MENTIONS, of_table(ANCHORS, spilled), of_table(passes.MENTIONS, spilled))]
    plans += [shuffle.plan(table, of_table(table, spilled), num_keys=num_entities) for table in TABLES]
    partitions = combined(run, "combine", shuffle, plans)
    reducing = (partitions, shuffle, config.merge_priors, inputs.uniform_sources)
    reduced = run("reduce", passes.reduce_partition, range(len(partitions)), *reducing, unit="partitions")
    num_mentions = _join(work / "pieces", partitions, reduced.results, folder)

    # where mentions stand, now that it is known what they are
    sequences = share("sequences", folder, work, SequenceIndex.FILES)
    known = update.known(folder) if update else Known.none(num_mentions)
    searched_pieces = difference.pieces() if difference else everything
    searched = over_pages("occurrences", passes.spill_occurrences, searched_pieces, shuffle, sequences, known, choice)
    spilled = spilled_by(searched.results)
    if update:
        spilled |= update.carry_occurrences(known, folder, work, shuffle, choice, over_pages)
    plan = shuffle.plan(passes.OCCURRENCES, spilled, num_keys=num_mentions)
    partitions = combined(run, "combine occurrences", shuffle, [plan])
    places = range(len(partitions))
    summed = run("reduce occurrences", passes.reduce_occurrences, places, partitions, shuffle, unit="partitions")
    with (work / "counts").fetched() as counts:
        occurrences.join([counts / name for found in summed.results for name in found["pieces"]], folder)
    own_entities.claim_names(pages, folder)

    own_entities.join_urls(pages, folder, Names(names), entities.page_ids)
    Folded.read(pages).write(folder, with_rows=False)
    catalogue.write(folder, entities, is_person=is_person, **cooccurrence.totals(folder, num_entities))
    total, external = _total(counted), _total(sourced)
    if update:
        total.update(update.totals)
    summary = {
        "entities": num_entities,
        "entities_without_page": num_entities - entities.num_pages,
        "persons": int(is_person.sum()),
        "linked_targets": entities.num_linked,
        "followed_links": total["links"],
        "dead_links": total["dead_links"],
        "teaching_documents": taught.num_rows,
        "teaching_mentions": int(sum(map(len, taught["mentions"].to_pylist()))),
        "mentions": num_mentions,
        "vocabulary": len(words.ids),
        "tokens": total["tokens"],
        **({name: external[name] for name in COUNTS} if inputs.sources else {}),
        "articles": pages.summary()["articles"],
    }
    Location(folder / "summary.json").write_json(summary)


def _join(location: Location, partitions: Sequence[Partition], reduced: Sequence[Found], folder: Path) -> int:
    """Join the pieces of all partitions, which follow each other in hash and entity order; returns the number of mentions."""
    found: dict[str, dict[str, int]] = {table: {} for table in (passes.MENTIONS, *TABLES)}
    for partition, result in zip(partitions, reduced, strict=True):
        found[partition.table] |= result["pieces"]
    with location.fetched() as pieces:
        for table in TABLES:
            cooccurrence.join([pieces / name for name in found[table]], folder / table)
        parts, sizes = [pieces / name for name in found[passes.MENTIONS]], [*found[passes.MENTIONS].values()]
        priors.join(parts, folder)
        join_csr([Path(f"{part}.{ANCHORS}") for part in parts], folder / ANCHORS, ANCHOR_COLUMNS)
        occurrences.join_sequences(parts, sizes, folder)
    return sum(sizes)


# -- passes


class _Runner:
    """`tasks.run` in one folder; remembers the most memory that a worker took."""

    def __init__(self, work: Location) -> None:
        self._work, self.peak_gib = work, 0.0

    def __call__(
        self, stage: str, function: Callable[..., Found], items: Sequence[Any], *shared: Any, **options: Any
    ) -> Outcome[Found]:
        done = tasks.run(stage, function, items, *shared, work=self._work, **options)
        self.peak_gib = max(self.peak_gib, done.peak_gib)
        return done


def _total(*outcomes: Outcome[Found]) -> Counter[str]:
    """What all tasks of some passes have counted."""
    total: Counter[str] = Counter()
    for found in (found for done in outcomes for found in done.results):
        total.update(found["counts"])
    return total
