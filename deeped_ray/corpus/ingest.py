"""Dump -> knowledge base, on Ray: the parts `pages` (parsed text and links) and `corpus` (catalogue, priors, counts).

    entities             one task per file of entities: each as a page, names beside them
    parse                one task per shard of the dump: pages with text and links; titles and words spilled by hash
    combine              where there is much: files of several tasks become one (`shuffle`); after every pass that spills
    merge                one task per partition: distinct titles; distinct words with their frequencies
    seal                 one task per lot of files of the part `pages`: their checksums
    teach                one task per parsed shard: articles whose links teach the linker, and are not counted
    (the driver)         decides which words the vocabulary has
    redirects ... index titles      one task per partition, in several passes: titles that are entities (`resolving`)
    names                one task per lot of titles: titles and redirects as mentions
    aliases              one task per lot of entities from files: their names as mentions, with counts
    count                one task per parsed shard: where its links lead; mentions, words and edges spilled by partition
    sources              one task per shard of every further source of priors
    reduce               one task per partition: pieces of the mention table and of the CSR arrays
    join                 one task per table: its files, from their pieces
    (the driver)         joins the pieces of the mention table
    occurrences          one task per parsed shard: on which pages mentions stand, and on which as a link
    reduce occurrences   one task per partition: on how many

With an earlier version, only pages that are gone or new are counted, and the rest is carried over (`update`, `updating`).

After a kill, the same command goes on with the tasks that have left no receipt. No process holds more than a shard, a
partition, or a few numbers per title, and the result does not depend on how the dump is cut.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.counting import make_corpus
from deeped_ray.corpus.inputs import Inputs
from deeped_ray.corpus.parsing import make_pages, shards_of
from deeped_ray.corpus.update import (
    Parsed,
    digest_of,
)
from deeped_ray.corpus.updating import Before
from deeped_ray.corpus.wikidump import DumpShard
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Recorded
from deeped_ray.running.resume import NEW_RUN, ResumeConfig

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
            made = make_pages(config, inputs, work, folder, before)
            kb.include(made.sealed)
            peaks.append(made.peak_gib)
        work.remove()
    identity = inputs.corpus_identity
    if not kb.is_current("corpus", config=identity, parents=["pages"]):
        identity = {**identity, "kept": before.kept} if before else identity
    if not kb.is_current("corpus", config=identity, parents=["pages"]):
        with kb.write("corpus", config=identity, parents=["pages"]) as folder:
            pages = kb.open("pages")
            work = resume.folder(kb, "count", [pages.id, identity, cut, before and before.corpus.id])
            made = make_corpus(pages, config, inputs, work, folder, before)
            kb.include(made.sealed)
            peaks.append(made.peak_gib)
        work.remove()
    if max(peaks) > config.memory_gib:
        logger.warning("a worker took %.2f GiB, more than `memory_gib` %g", max(peaks), config.memory_gib)
    return {
        **kb.open("pages").summary(),
        **kb.open("corpus").summary(),
        **({"peak_worker_gib": round(max(peaks), 2), "memory_gib": config.memory_gib} if any(peaks) else {}),
    }


def _keep_pages(kb: KnowledgeBase, config: CorpusConfig, inputs: Inputs, before: Before | None) -> bool:
    """Whether the dump has the same bytes as the earlier one, whose pages are then kept."""
    if before is None or "pages" not in kb or kb.open("pages").id != before.pages.id:
        return False
    own = {*inputs.pages_identity, *before.pages.config} - {"dumps"}
    if any(inputs.pages_identity.get(name) != before.pages.config.get(name) for name in own):
        return False
    if not _are_same(shards_of(config, inputs), Parsed.of(before.pages).digests):
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
