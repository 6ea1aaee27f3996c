"""p(e|m): how often a surface string, as a link, leads to an entity (section 6).

    mentions.hashes.npy, mentions.arrow     the distinct mentions, in hash order
    mentions.offsets.npy                    CSR rows: candidates of mention i are [offsets[i], offsets[i+1])
    mentions.entities.npy, .counts.npy      candidates by falling count, and the counts behind their priors

A link counts 1. A title or redirect is a name of its entity too: it counts TITLE_COUNT, once, so that it makes entities
known that are never linked and hardly moves the others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.artifacts import Part
from deeped_ray.corpus.shuffle import gather
from deeped_ray.corpus.strings import StringIndex, hashes_of, write_hashed_strings
from deeped_ray.text import bare_title, capitalize_words, normalize_mention

MAX_CANDIDATES = 100
# Differs from the paper, which knows no such counts: see above
TITLE_COUNT = 0.5
_SCHEMA = pa.schema([("hash", pa.uint64()), ("mention", pa.string()), ("entity", pa.int64()), ("count", pa.float64())])


def mention_rows(counts: Mapping[tuple[str, int], float]) -> pa.Table:
    """(mention, entity) -> count as rows for the reducers."""
    mentions = [mention for mention, _ in counts]
    columns = {
        "hash": hashes_of(mentions),
        "mention": mentions,
        "entity": [entity for _, entity in counts],
        "count": list(counts.values()),
    }
    return pa.table(columns, schema=_SCHEMA)


def title_mentions(titles: Sequence[str], entities: Sequence[int]) -> pa.Table:
    """Titles and redirects as mentions, also without what tells them apart: `Apple (fruit)` and `Paris, Texas` as well."""
    counts: dict[tuple[str, int], float] = {}
    for title, entity in zip(titles, entities, strict=True):
        for name in {normalize_mention(title), bare_title(normalize_mention(title))} - {""}:
            counts[name, entity] = TITLE_COUNT
    return mention_rows(counts)


def reduce_mentions(paths: Sequence[Path], partition: int, folder: Path, name: str) -> None:
    """Task: add up the counts of one partition's mentions and write a piece of the mention table."""
    table = gather(paths, partition)
    summed = table.group_by(["mention", "entity"], use_threads=False).aggregate([("count", "sum"), ("hash", "min")])
    summed = summed.sort_by(
        [("hash_min", "ascending"), ("mention", "ascending"), ("count_sum", "descending"), ("entity", "ascending")]
    )
    mentions = summed["mention"].combine_chunks()
    changes = (
        np.flatnonzero(pc.not_equal(mentions[1:], mentions[:-1]).to_numpy(zero_copy_only=False)) + 1
        if len(mentions)
        else np.array([], int)
    )
    starts = np.concatenate([[0], changes])[: len(mentions)].astype(np.int64)
    rank = np.arange(len(mentions)) - np.repeat(starts, np.diff(np.append(starts, len(mentions))))
    is_kept = rank < MAX_CANDIDATES
    lengths = np.add.reduceat(is_kept, starts) if len(starts) else np.array([], int)
    write_hashed_strings(folder, name, summed["hash_min"].to_numpy()[starts], mentions.take(pa.array(starts)))
    np.save(folder / f"{name}.offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    np.save(folder / f"{name}.entities.npy", summed["entity"].to_numpy()[is_kept].astype(np.int32))
    np.save(folder / f"{name}.counts.npy", summed["count_sum"].to_numpy()[is_kept].astype(np.float32))


class PriorCandidate(NamedTuple):
    entity_id: int
    prior: float
    num_links: float
    """The count behind the prior."""


class MentionTable:
    """Reads the mention table of a corpus part."""

    def __init__(self, part: Part) -> None:
        self._mentions = StringIndex(part.path, "mentions")
        self._offsets = part.array("mentions.offsets")
        self._entities: npt.NDArray[np.int32] = part.array("mentions.entities")
        self._counts: npt.NDArray[np.float32] = part.array("mentions.counts")

    def __len__(self) -> int:
        return len(self._mentions)

    def candidates(self, surface: str) -> list[PriorCandidate]:
        """Candidates with p(e|m), most probable first; empty for a string that is never a link or title."""
        mention = normalize_mention(surface)
        row = self._mentions.find(mention)
        if row is None and mention.isupper():  # headlines: NEW YORK -> New York
            row = self._mentions.find(capitalize_words(mention))
        if row is None:
            return []
        cells = slice(int(self._offsets[row]), int(self._offsets[row + 1]))
        counts = self._counts[cells].tolist()
        total = sum(counts)
        return [
            PriorCandidate(entity_id, count / total, count)
            for entity_id, count in zip(self._entities[cells].tolist(), counts, strict=True)
        ]
