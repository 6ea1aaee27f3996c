"""The driver's side of the part `pages`: files and shards of the dump become pages, and tables of titles and of words.

`passes` has what the tasks do, and `ingest` says when all this is done.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeped_ray.corpus import passes
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.entity_files import LIMITS
from deeped_ray.corpus.inputs import Inputs
from deeped_ray.corpus.own_entities import FOLDED, is_folded, is_own
from deeped_ray.corpus.pages import page_shards
from deeped_ray.corpus.passes import Found
from deeped_ray.corpus.runner import Runner, counted_by
from deeped_ray.corpus.shuffle import Shuffle, combined, of_table, spilled_by
from deeped_ray.corpus.update import SHARDS, Difference, Parsed, Piece
from deeped_ray.corpus.updating import Before
from deeped_ray.corpus.wikidump import OWN_ARTICLES, DumpError, DumpShard, cut_dump
from deeped_ray.running.tasks import Outcome
from deeped_ray.storage.location import Location

logger = logging.getLogger(__name__)


def shards_of(config: CorpusConfig, inputs: Inputs) -> list[DumpShard]:
    return [shard for dump in inputs.dumps for shard in cut_dump(dump, shard_bytes=config.shard_bytes)]


def make_pages(config: CorpusConfig, inputs: Inputs, work: Location, folder: Path, before: Before | None) -> Runner:
    """What is large stays where tasks have left it, and is sealed."""
    run, lot_characters = Runner(work), config.memory_bytes // 32
    shuffle = Shuffle(work, config.gathered_bytes, config.partitions)
    shards = shards_of(config, inputs)
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
    left = [work / f"{name}.parquet" for name in [*made, *beside, *(partition.name for partition in partitions)]]
    run.seal({file.name: file for file in [*left, *kept]})
    articles = inputs.kept.summary()["articles"] if inputs.kept else shards[0].site.articles if shards else OWN_ARTICLES
    inputs.folded.write(folder, with_rows=True)
    Location(folder / "summary.json").write_json({**summary, "articles": articles})
    known = Parsed.of(inputs.kept).shards if inputs.kept and SHARDS in inputs.kept.record["files"] else []
    fresh = [{name: value for name, value in found.items() if name != "spilled"} for found in parsed.results]
    Location(folder / SHARDS).write_json({"shards": fresh or known})
    return run


def _count_changed_words(before: Before, lots: Sequence[str], shuffle: Shuffle, run: Runner) -> list[Found]:
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
    total, earlier = counted_by(*done), inputs.kept.summary() if inputs.kept else {}
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
        why = [f"{others:,} of other namespaces"] if others else []
        why += [f"{untitled:,} without a title ({ids})"] if untitled else []
        left_out = f" Left out: {', '.join(why)}." if why else ""
        raise DumpError(f"{names} contains no articles.{left_out}{f' {damage[0]}' if damage else ''}")
    if untitled:
        logger.warning("skipped %d pages without a title: %s", untitled, ids)
    if total["shortened_entities"]:
        logger.warning(
            "%d entities have more than is kept (%s): the rest is left out",
            *(total["shortened_entities"], LIMITS),
        )
    return {**earlier, "pages": total["pages"], **total, "damaged_stretches": earlier.get("damaged_stretches", damage)}
