"""The driver's side of an update: what is kept of an earlier corpus, and the passes that bring its counts up to date.

`update` has what these passes are about, `passes` what their tasks do, and `ingest` says when they run.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from deeped_ray.corpus import occurrences, passes, teaching, vocabulary
from deeped_ray.corpus.config import LOT
from deeped_ray.corpus.cooccurrence import TABLES, WordCounts
from deeped_ray.corpus.occurrences import SequenceIndex
from deeped_ray.corpus.pages import page_shards
from deeped_ray.corpus.resolving import Entities
from deeped_ray.corpus.shuffle import Shuffle, Spilled, spilled_by
from deeped_ray.corpus.teaching import Choice
from deeped_ray.corpus.update import (
    ANCHORS,
    Difference,
    Earlier,
    Known,
    Piece,
    can_update,
    entity_hashes,
    renamed,
    titles_moved,
)
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part, share
from deeped_ray.knowledge.strings import read_strings
from deeped_ray.storage.location import Location

Run = Callable[..., Any]
"""`tasks.run`, in the folder of this run."""
CELLS = 8 * LOT
"""Of a table, that a task carries over."""


class Before(NamedTuple):
    """The version that a fresh dump is compared with."""

    pages: Part
    corpus: Part

    @classmethod
    def of(cls, kb: KnowledgeBase) -> "Before | None":
        """None if its parts do not have what an update needs: then everything is counted."""
        before = cls(kb.open("pages"), kb.open("corpus"))
        return before if can_update(*before) else None

    @property
    def choice(self) -> Choice:
        return teaching.choice_of(self.corpus)

    @property
    def kept(self) -> dict[str, Any]:
        """What a corpus depends on, beside the pages and the settings, if it is made from this one."""
        files = self.corpus.record["files"]
        return {"vocabulary": [files[name]["sha256"] for name in vocabulary.FILES], "teaching": self.choice.bound}


@dataclass(frozen=True)
class Update:
    before: Before
    difference: Difference
    pieces: list[Piece]
    """Pages whose links and words are taken out, or counted."""
    earlier: Earlier

    @classmethod
    def of(cls, before: Before, difference: Difference, entities: Entities, folder: Path, over_pages: Run) -> "Update":
        """`entities` are those of the fresh dump; the folder has the index of its titles."""
        hashes = entity_hashes(before.corpus)
        moved_titles = titles_moved(before.corpus, hashes, folder, entities.hashes)
        stayed = list(difference.stayed.items())
        moved = over_pages("moved", passes.moved_pages, stayed, moved_titles).results if len(moved_titles) else []
        keys = np.array([key for found in moved for key in found["keys"]], dtype=np.uint64)
        counted = difference.with_moved(keys, page_shards(before.pages)) if len(keys) else difference
        return cls(before, difference, counted.pieces(), Earlier(before.corpus, renamed(hashes, entities.hashes)))

    @property
    def totals(self) -> dict[str, int]:
        """What the earlier corpus has counted."""
        summary = self.before.corpus.summary()
        return {"links": summary["followed_links"], "dead_links": summary["dead_links"], "tokens": summary["tokens"]}

    def carry(self, run: Run, shuffle: Shuffle, num_entities: int) -> list[dict[str, Any]]:
        """Hand what the earlier corpus has counted to the reducers; returns what the tasks have returned."""
        corpus = self.before.corpus
        cells = [(table, *ends) for table in TABLES for ends in _ranges(WordCounts(corpus, table).offsets)]
        carrying = (shuffle, self.earlier, num_entities)
        done: list[dict[str, Any]] = run(
            "carry", passes.carry_cells, cells, *carrying, unit="ranges of entities"
        ).results
        mentions = list(_ranges(corpus.array(f"{ANCHORS}.offsets")))
        linked = run("carry links", passes.carry_anchors, mentions, shuffle, self.earlier, unit="ranges").results
        return [*done, *linked]

    def known(self, folder: Path) -> Known:
        """Which of the mentions in the folder the earlier corpus has."""
        before, now = (
            np.asarray(np.load(path / "mentions.hashes.npy", mmap_mode="r", allow_pickle=False))
            for path in (self.before.corpus.path, folder)
        )
        is_known = renamed(now, before) >= 0
        return Known(len(now), is_known, np.flatnonzero(~is_known))

    def carry_occurrences(
        self, known: Known, folder: Path, work: Location, shuffle: Shuffle, choice: Choice, over_pages: Run
    ) -> Spilled:
        """Spill the counts of mentions that were known, and of the others on the pages that stay."""
        corpus = self.before.corpus
        now = np.load(folder / "mentions.hashes.npy", mmap_mode="r", allow_pickle=False)
        mention = renamed(np.asarray(corpus.array("mentions.hashes")), np.asarray(now))
        counts = {name: corpus.array(f"mentions.{name}").astype(np.int64) for name in ("pages", "linked_pages")}
        rows = pa.table({"mention": mention, **counts})
        rows = rows.filter(pa.array((mention >= 0) & (counts["pages"] > 0)))
        spilled = shuffle.spill("occurrences-earlier", rows, num_keys=known.num_mentions)
        if not len(known.fresh):
            return spilled
        aside = folder / "fresh"  # all nodes see this folder; it is no part of the part
        aside.mkdir(exist_ok=True)
        strings = read_strings(folder, "mentions").take(pa.array(known.fresh)).to_pylist()
        occurrences.write_sequences(aside / "piece", strings)
        occurrences.join_sequences([aside / "piece"], [len(strings)], aside)
        sequences = share("fresh", aside, work, SequenceIndex.FILES)
        stayed = [Piece(shard, keys) for shard, keys in self.difference.stayed.items()]
        searching = (shuffle, sequences, known, choice)
        done = over_pages("fresh occurrences", passes.spill_fresh_occurrences, stayed, *searching).results
        shutil.rmtree(aside)
        return spilled | spilled_by(done)


def _ranges(offsets: Any) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about as many cells."""
    if len(offsets) < 2:
        return
    borders = np.searchsorted(offsets, np.arange(0, int(offsets[-1]), CELLS))
    ends = np.unique([0, *borders.tolist(), len(offsets) - 1]).tolist()
    yield from itertools.pairwise(ends)
