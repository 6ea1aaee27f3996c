"""What a corpus is made of, and how finely the work is cut."""

import math
from dataclasses import dataclass
from typing import Annotated

from deeped_ray.corpus.priors import MergeRule
from deeped_ray.running.config import FLAG, JOB_FLAG
from deeped_ray.types import DeepEdError, require_at_least

LOT = 250_000
"""Names, or distinct (mention, entity) pairs, that a task holds before it spills them."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How a dump becomes a corpus."""

    dump: Annotated[
        tuple[str, ...],
        "MediaWiki dump: file, folder or glob; repeatable; default: the mini encyclopedia. Export XML, plain, .bz2 or .gz, or WikiExtractor output with links; on disk or s3:// and the like. A multistream .bz2 is read by many workers at once.",
        FLAG,
    ] = ()
    entities: Annotated[
        tuple[str, ...],
        "entities of your own: a file of JSON lines or CSV; repeatable. Alone, or on top of a dump. Without --dump, the knowledge base keeps the pages of the dump that it has.",
        FLAG,
    ] = ()
    priors: Annotated[
        tuple[str, ...],
        "another source of p(e|m), as counts:FILE; repeatable. counts:FILE (mention, title, count as TSV or Parquet), deep-ed:FILE, crosswikis:FILE or yago:FILE.",
        JOB_FLAG,
    ] = ()
    merge_priors: Annotated[
        MergeRule, "how sources of p(e|m) are merged: paper (average) or deep-ed (counts added, YAGO added on top)"
    ] = "paper"
    persons: Annotated[
        str | None,
        "file with titles of persons, one a line. They are added to the persons that the dump shows. May be compressed.",
    ] = None
    min_word_count: Annotated[int, "a word must occur this often in the dump to enter the vocabulary"] = 10
    link_window: Annotated[
        int, "words around a hyperlink that count as co-occurring with its entity, half on each side"
    ] = 20
    min_links_without_page: Annotated[
        int, "links that make a title without a page an entity. 0: it is never one.", FLAG
    ] = 2
    teaching_links: Annotated[
        int,
        "links that teach the linker, at most. Their articles are kept out of all counts. 0: none.",
        FLAG,
    ] = 100_000
    max_teaching_share: Annotated[float, "share of the links that may teach the linker, at most"] = 0.15
    memory_gib: Annotated[float, "memory a worker may take. The dump and the tables are cut accordingly.", FLAG] = 2.0
    shard_mb: Annotated[float, "megabytes of dump, as on disk, per task; 0: by memory_gib"] = 0.0
    partitions: Annotated[int, "reduce tasks of each table, at least; 0: as many as memory_gib asks for"] = 0
    strict: Annotated[bool, "fail when a stretch of the dump is damaged, instead of skipping it"] = False

    def __post_init__(self) -> None:
        require_at_least(1, self, "min_word_count")
        require_at_least(2, self, "link_window")
        require_at_least(0.5, self, "memory_gib")
        require_at_least(0, self, "min_links_without_page", "teaching_links", "shard_mb", "partitions")
        if not 0 <= self.max_teaching_share <= 1:
            raise DeepEdError(f"`max_teaching_share` must lie between 0 and 1, not be {self.max_teaching_share}.")

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)

    @property
    def shard_bytes(self) -> int:
        return math.ceil(self.shard_mb * 2**20) or shard_bytes_for(self.memory_bytes)

    @property
    def gathered_bytes(self) -> int:
        return gathered_bytes_for(self.memory_bytes)


def shard_bytes_for(memory_bytes: int) -> int:
    """A worker's peak grows by about 60 bytes per byte of a bzip2 dump's shard."""
    return min(4 * 2**20, memory_bytes // 256)


def gathered_bytes_for(memory_bytes: int) -> int:
    """To reduce a byte of rows takes 2 (words) to 6 bytes (mentions) of memory, above the 0.4 GiB of a worker.

    Twice that is left free: what a worker has once taken, it keeps, and not all rows are alike.
    """
    return max(16 * 2**20, (memory_bytes - 400 * 2**20) // 12)
