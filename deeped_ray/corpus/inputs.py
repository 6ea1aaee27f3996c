"""The files that a corpus is made from: looked up once, before any work, so that what is missing is told at once."""

from dataclasses import dataclass
from typing import Any

from deeped_ray.corpus.config import CorpusConfig, partitions_for
from deeped_ray.corpus.prior_sources import PriorSource
from deeped_ray.corpus.wikidump import find_dumps
from deeped_ray.knowledge.base import fingerprint
from deeped_ray.mini import MINI_DUMP
from deeped_ray.storage.location import Location


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Files with their fingerprints, and how finely their work is cut."""

    dumps: list[Location]
    sources: list[PriorSource]
    persons: Location | None
    pages_identity: dict[str, Any]
    """All that the part `pages` depends on."""
    corpus_identity: dict[str, Any]
    """All that the part `corpus` depends on, beside the pages."""
    num_partitions: int

    @property
    def uniform_sources(self) -> list[int]:
        """Numbers of the sources that do not count."""
        return [number for number, source in enumerate(self.sources, start=1) if source.is_uniform]

    @classmethod
    def find(cls, config: CorpusConfig) -> "Inputs":
        dumps = find_dumps(config.dump) if config.dump else [Location(MINI_DUMP)]
        sources = [PriorSource.open(spec) for spec in config.priors]
        persons = Location(config.persons) if config.persons else None
        dump_prints = [fingerprint(dump) for dump in dumps]
        source_prints = [fingerprint(source.path) for source in sources]
        corpus_identity = {
            "min_word_count": config.min_word_count,
            "link_window": config.link_window,
            "min_links_without_page": config.min_links_without_page,
            "priors": [[source.kind, found] for source, found in zip(sources, source_prints, strict=True)],
            "merge_priors": config.merge_priors,
            "teaching_links": config.teaching_links,
            "max_teaching_share": config.max_teaching_share,
            "persons": fingerprint(persons) if persons else None,
        }
        num_bytes = sum(found["bytes"] for found in [*dump_prints, *source_prints])
        return cls(
            dumps=dumps,
            sources=sources,
            persons=persons,
            pages_identity={"dumps": dump_prints},
            corpus_identity=corpus_identity,
            num_partitions=config.partitions or partitions_for(num_bytes, config.memory_bytes),
        )
