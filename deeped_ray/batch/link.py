"""Links a corpus of any size on Ray: documents in Parquet or JSON lines in, answers in Parquet out, by partition.

    OUTPUT/part-000000.parquet   answers of one partition, always whole (see `answers`)
    OUTPUT/_run.json             what the answers depend on: inputs, settings, parts of the knowledge base
    OUTPUT/_partitions.json      how the inputs are split
    OUTPUT/_summary.json         counts and speed, once all partitions are done
    OUTPUT/_SUCCESS              empty; written last, when the run has succeeded
    OUTPUT/.trying-000000-...    which document is being linked, once a worker has died in that partition

Partitions and the batches in them depend on the inputs alone. So the bytes are the same however many workers there are,
and whatever was killed and resumed. If a worker dies, its partition is linked again, one document at a time. A document
that kills its worker twice is left out, and its row holds the error.
"""

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from typing import Any

from deeped_ray import __version__
from deeped_ray.batch.answers import Counts, read_counts
from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.documents import Partition, inspect_files, line_blocks, line_cuts, partitions_of
from deeped_ray.batch.partition import Attempt, Job, link_partition
from deeped_ray.corpus.wikidata_ids import ids_part
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.running import tasks
from deeped_ray.storage.lease import sole_writer
from deeped_ray.storage.location import Location, find_files
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)
_MAX_BLAMED = 10
"""Documents of a partition that may kill their workers; with more, nothing of it is linked."""
_MAX_CRASHES = 4
"""Times that workers may die over a partition without a document to blame."""


def link_corpus(kb: KnowledgeBase, config: CorpusLinkingConfig, detection: DetectionConfig) -> dict[str, Any]:
    """Link what is not linked yet; returns counts and speed."""
    if not config.input or not config.output:
        raise DeepEdError("Give --input and --output.")
    output = Location(config.output)
    for option, location in [("--output", output), *(("--input", Location(pattern)) for pattern in config.input)]:
        _refuse_working_dir(option, location)
    files = _find_inputs(config.input, output)
    output.make_folder()
    with sole_writer(output) as still_mine:
        job = _start(kb, config, detection, output, files)
        summary = _link_partitions(job, _partitions(job, files))
        still_mine()
        return _finish(job, summary)


# -- what is to be done


def _refuse_working_dir(option: str, location: Location) -> None:
    if location.path is not None and "working_dir_files" in (*location.path.parts, *location.path.resolve().parts):
        raise DeepEdError(
            f"{option} {location} lies in the job's temporary working directory. Give it as an absolute path."
        )


def _find_inputs(patterns: Sequence[str], output: Location) -> list[Location]:
    """Files in the order given, without what other jobs leave beside their results, and without our own."""
    found: list[Location] = []
    for pattern in patterns:
        files = [file for file in find_files(pattern) if not file.name.startswith(("_", "."))]
        files = [file for file in files if not file.address.startswith(f"{output.address}/")]
        if not files:
            raise DeepEdError(f"Cannot read {pattern}: there are no such files.")
        found += files
    return list(dict.fromkeys(found))


def _start(
    kb: KnowledgeBase, config: CorpusLinkingConfig, detection: DetectionConfig, output: Location, files: list[Location]
) -> Job:
    """Take up the run that is there, if it is the same; else begin one, if there is none."""
    part_ids = _part_ids(kb, config)
    with ThreadPoolExecutor(16) as pool:
        inputs = list(pool.map(fingerprint, files))
    run = {
        "deeped_ray": __version__,
        "knowledge_base": dict(part_ids),
        "options": {**config.recorded(), **asdict(detection)},
        "inputs": {str(file): print_ for file, print_ in zip(files, inputs, strict=True)},
    }
    metadata = {
        "version": __version__,
        "model": config.model,
        "knowledge_base": dict(part_ids)["corpus"],
        **({"linker": dict(part_ids)["linker"]} if config.model != "prior" else {}),
        "run": hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16],
    }
    file = output / "_run.json"
    if file.exists():
        _refuse_another_run(output, file.read_json(), json.loads(json.dumps(run)))
    elif output.sizes():
        raise DeepEdError(f"{output} is not empty, and was not made by jobs/link_corpus.py. Give another --output.")
    else:
        file.write_json(run)
    _remove_leftovers(output)
    return Job(kb.origin, part_ids, config, detection, output, metadata)


def _remove_leftovers(output: Location) -> None:
    """What a killed run, or its last tasks, left half-written."""
    for name in output.children():
        if name.startswith((".part-", ".trying-")):
            (output / name).remove()


def _part_ids(kb: KnowledgeBase, config: CorpusLinkingConfig) -> tuple[tuple[str, str], ...]:
    """Of all parts that a linker reads: opened, so that one that is missing or stale is told now."""
    ids = ids_part(kb)
    names = ["corpus"] if config.model == "prior" else [*kb.open("linker").record["parents"], "linker"]
    return tuple((part.name, part.id) for part in [*map(kb.open, names), *([ids] if ids else [])])


def _refuse_another_run(output: Location, found: dict[str, Any], expected: dict[str, Any]) -> None:
    differing = [
        f"{group} {name}" if isinstance(expected[group], dict) else group
        for group in expected
        for name in _differing(found.get(group), expected[group])
    ]
    if differing:
        shown = ", ".join(differing[:5]) + (f" and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise DeepEdError(
            f"{output} holds answers of another run, which differs in: {shown}."
            " Give another --output, or the same inputs, options and knowledge base; or remove that folder."
        )


def _differing(found: Any, expected: Any) -> list[str]:
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return [] if found == expected else [""]
    return [name for name in {**expected, **found} if found.get(name) != expected.get(name)]


def _partitions(job: Job, files: list[Location]) -> list[Partition]:
    """As they were cut when the run began."""
    kept = job.output / "_partitions.json"
    if kept.exists():
        return [Partition(number, files[row[0]], *row[1:]) for number, row in enumerate(kept.read_json()["partitions"])]
    infos = inspect_files(files)
    blocks = [
        block
        for file, info in zip(files, infos, strict=True)
        if info.kind == "lines"
        for block in line_blocks(file, info)
    ]
    most = job.config.partition_documents
    cuts = dict(zip(blocks, tasks.run("cut", line_cuts, blocks, most, unit="blocks of lines").results, strict=True))
    partitions = partitions_of(files, infos, cuts, most=most)
    places = {file: place for place, file in enumerate(files)}
    rows = [[places[each.file], each.kind, each.first_row, each.num_rows, each.start, each.end] for each in partitions]
    kept.write_json({"columns": ["input", *(each.name for each in fields(Partition)[2:])], "partitions": rows})
    return partitions


# -- on the driver


def _link_partitions(job: Job, partitions: list[Partition]) -> dict[str, Any]:
    new, given_up = Counts(), 0
    start = time.monotonic()

    def note(attempt: Attempt, counts: Counts) -> str:
        nonlocal given_up
        new.add(counts)
        given_up += attempt.is_given_up
        return f"{new.mentions:,} mentions, {new.num_errors:,} errors"

    is_known = all(partition.num_rows is not None for partition in partitions)
    outcome = tasks.run(
        "link",
        link_partition,
        [Attempt(partition) for partition in partitions],
        job,
        earlier=lambda attempt: _earlier(job, attempt.partition),
        unit="documents" if is_known else "partitions",
        size=lambda attempt: (attempt.partition.num_rows or 0) if is_known else 1,
        note=note,
        after_crash=lambda attempt, why: _after_crash(job, attempt, why, new),
        writes=job.output,
    )
    seconds, is_new = time.monotonic() - start, outcome.num_skipped < len(partitions)
    total = Counts()
    for counts in outcome.results:
        total.add(counts)
    speeds = ("documents", "mentions", "characters")
    return {
        **asdict(total),
        "errors": dict(sorted(total.errors.items())),
        "partitions": len(partitions),
        "skipped_partitions": outcome.num_skipped,
        "given_up_partitions": given_up,
        **({f"{name}_per_s": round(getattr(new, name) / seconds, 1) for name in speeds} if is_new else {}),
        **({"peak_worker_gib": round(outcome.peak_gib, 2)} if is_new else {}),
    }


def _earlier(job: Job, partition: Partition) -> Counts | None:
    counts = read_counts(job.file(partition), job.metadata)
    if counts is None:  # from here on not everything is there
        (job.output / "_SUCCESS").remove()
    return counts


def _after_crash(job: Job, attempt: Attempt, why: str, finished: Counts) -> Attempt:
    """What to do with a partition over which a worker has died: by itself, by a neighbour's hunger, or by a document."""
    file, crashes = job.mark(attempt.partition), attempt.crashes + 1
    row = file.read_json()["row"] if file.exists() else None
    logger.warning("a worker died over %s, at row %s: %s", job.file(attempt.partition).name, row, why)
    if row is None and crashes >= _MAX_CRASHES and not finished.documents:
        raise DeepEdError(
            f"Workers die before they link anything: {why} Give them more memory, or fewer CPUs per node to share it."
        )
    is_guilty = row is not None and row == attempt.suspect
    blamed = (*attempt.blamed, row) if is_guilty and row is not None else attempt.blamed
    is_given_up = len(blamed) > _MAX_BLAMED or crashes - 2 * len(blamed) > _MAX_CRASHES
    return replace(attempt, crashes=crashes, suspect=row, blamed=blamed, is_given_up=is_given_up)


def _finish(job: Job, summary: dict[str, Any]) -> dict[str, Any]:
    _remove_leftovers(job.output)
    file, success = job.output / "_summary.json", job.output / "_SUCCESS"
    if success.exists() and file.exists():  # nothing was left to do: what it took stays on record
        summary = {**file.read_json(), "skipped_partitions": summary["skipped_partitions"]}
    else:
        file.write_bytes(json.dumps(summary, indent=2).encode())
    num_errors, share = sum(summary["errors"].values()), job.config.max_error_share
    if num_errors > share * summary["documents"]:
        success.remove()
        raise DeepEdError(
            f"{num_errors:,} of {summary['documents']:,} documents have errors, more than `answers.max_error_share` {share:g}:"
            f" {summary['errors']}. All answers are in {job.output}; there is no _SUCCESS."
        )
    success.write_bytes(b"")
    return {**summary, "output": str(job.output)}
