"""The driver's side of the part `corpus`: all that is counted of titles, mentions, words and links.

`passes` has what the tasks do, and `ingest` says in which order.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from deeped_ray.corpus import (
    catalogue,
    occurrences,
    own_entities,
    passes,
    priors,
    teaching,
    vocabulary,
)
from deeped_ray.corpus.config import LOT, CorpusConfig
from deeped_ray.corpus.cooccurrence import TABLES, TOTALS
from deeped_ray.corpus.folded import Folded
from deeped_ray.corpus.inputs import Inputs
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.pages import page_shards
from deeped_ray.corpus.passes import Found
from deeped_ray.corpus.persons import read_persons
from deeped_ray.corpus.prior_sources import COUNTS, cut_sources
from deeped_ray.corpus.resolving import Entities, Taken, resolve
from deeped_ray.corpus.runner import Runner, counted_by
from deeped_ray.corpus.shuffle import Partition, Shuffle, combined, of_table, spilled_by
from deeped_ray.corpus.teaching import Choice
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.update import ANCHOR_COLUMNS, ANCHORS, WORTH_SHARE, Difference, Known, Piece
from deeped_ray.corpus.updating import Before, Update
from deeped_ray.knowledge.csr import join_csr
from deeped_ray.knowledge.parts import Part, Sealed, share
from deeped_ray.storage.arrays import read_array
from deeped_ray.storage.location import Location


def make_corpus(
    pages: Part, config: CorpusConfig, inputs: Inputs, work: Location, folder: Path, before: Before | None
) -> Runner:
    """What is large stays where tasks have left it, and is sealed."""
    run, shuffle = Runner(work), Shuffle(work, config.gathered_bytes, config.partitions)
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
    return run


def _count(
    pages: Part,
    config: CorpusConfig,
    inputs: Inputs,
    run: Runner,
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
    num_mentions = _join(run, work, partitions, reduced.results, folder, num_entities)

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
    totals = {name: read_array((work / f"totals-{table}.npy").local()) for name, table in TOTALS.items()}
    catalogue.write(folder, entities, is_person=is_person, **totals)
    total, external = counted_by(counted), counted_by(sourced)
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


def _join(
    run: Runner,
    work: Location,
    partitions: Sequence[Partition],
    reduced: Sequence[Found],
    folder: Path,
    num_entities: int,
) -> int:
    """Join the pieces of all partitions, which follow each other in hash and entity order; returns the number of mentions.

    What is counted of entities, most of the part, is joined by tasks. Mentions are joined here.
    """
    found: dict[str, dict[str, int]] = {table: {} for table in (passes.MENTIONS, *TABLES)}
    for partition, result in zip(partitions, reduced, strict=True):
        found[partition.table] |= result["pieces"]
    tables = [(table, [*found[table]]) for table in TABLES]
    for joined in run("join", passes.join_table, tables, work, num_entities, unit="tables").results:
        run.sealed |= {name: Sealed(work / "joined" / name, checksum) for name, checksum in joined["files"].items()}
    with (work / "pieces").fetched(f"{passes.MENTIONS}-*") as pieces:
        parts, sizes = [pieces / name for name in found[passes.MENTIONS]], [*found[passes.MENTIONS].values()]
        priors.join(parts, folder)
        join_csr([Path(f"{part}.{ANCHORS}") for part in parts], folder / ANCHORS, ANCHOR_COLUMNS)
        occurrences.join_sequences(parts, sizes, folder)
    return sum(sizes)
