"""Dump -> knowledge base, on Ray: the parts `pages` (parsed text and links) and `corpus` (catalogue, priors, counts).

    parse         one task per shard of the dump: pages with text and links as Parquet; titles and words spilled by hash
    merge         one task per partition: distinct titles; distinct words with their frequencies
    resolve       driver: redirects, and which titles are entities, in numpy arrays
    count         one task per parsed shard: where its links lead; mentions, words and edges spilled by partition
    sources       one task per shard of every further source of priors
    reduce        one task per partition: pieces of the mention table and of the CSR arrays, joined by the driver
    occurrences   one task per parsed shard: on how many pages each mention stands, and on how many as a link

Every task writes whole files into the run's folder; after a kill the same command goes on with those that are
missing. No process holds more than a shard, a partition, or a few numbers per title, and the result does not depend on
how the dump is cut.
"""

import logging
from typing import Any

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.counting import count_corpus
from deeped_ray.corpus.parsing import collect_pages, parse_dump
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.running.resume import NEW_RUN, ResumeConfig

logger = logging.getLogger(__name__)


def build_corpus(kb: KnowledgeBase, config: CorpusConfig, resume: ResumeConfig = NEW_RUN) -> dict[str, Any]:
    """Make the parts that are missing or would come out differently; returns what the knowledge base now holds."""
    pages_config = {"dumps": [fingerprint(path) for path in config.dumps()]}
    counts_config = {
        "min_word_count": config.min_word_count,
        "link_window": config.link_window,
        "min_links_without_page": config.min_links_without_page,
        "priors": [[source.kind, fingerprint(source.path)] for source in config.sources()],
        "merge_priors": config.merge_priors,
        "persons": fingerprint(config.persons) if config.persons else None,
    }
    cut = [config.shard_bytes, config.num_partitions()]
    peaks = [0.0]
    if not kb.is_current("pages", config=pages_config, parents=[]):
        with kb.write("pages", config=pages_config, parents=[]) as folder:
            work = resume.folder(kb, "parse", [pages_config, cut])
            peaks.append(parse_dump(config, work))
            peaks.append(collect_pages(config, work, folder))
        work.remove()
    if not kb.is_current("corpus", config=counts_config, parents=["pages"]):
        with kb.write("corpus", config=counts_config, parents=["pages"]) as folder:
            pages = kb.open("pages")
            work = resume.folder(kb, "count", [pages.id, counts_config, cut])
            peaks.append(count_corpus(pages, config, work, folder))
        work.remove()
    if max(peaks) > config.memory_gb:
        logger.warning("a worker took %.2f GiB, more than --memory-gb %g", max(peaks), config.memory_gb)
    return {
        **kb.open("pages").summary(),
        **kb.open("corpus").summary(),
        **({"peak_worker_gib": round(max(peaks), 2), "memory_gb": config.memory_gb} if any(peaks) else {}),
    }
