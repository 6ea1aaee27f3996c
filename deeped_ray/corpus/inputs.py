"""The files that a corpus is made from: looked up once, before any work, so that what is missing is told at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.folded import Folded
from deeped_ray.corpus.prior_sources import PriorSource
from deeped_ray.corpus.wikidump import find_dumps
from deeped_ray.knowledge.base import fingerprint
from deeped_ray.knowledge.changes import Recorded
from deeped_ray.knowledge.parts import Part, checksum_of
from deeped_ray.mini import MINI_DUMP
from deeped_ray.storage.location import Location, find_files
from deeped_ray.types import DeepEdError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Files with their fingerprints."""

    dumps: list[Location]
    kept: Part | None
    """Pages of a dump that is not given again, for entities on top of them."""
    entities: list[Location]
    """Files with entities of one's own."""
    keeps_entities: bool
    """Whether the entities of `kept` stay, beside its pages."""
    folded: Folded
    """Changes that the parts shall hold."""
    sources: list[PriorSource]
    persons: Location | None
    pages_identity: dict[str, Any]
    """All that the part `pages` depends on."""
    corpus_identity: dict[str, Any]
    """All that the part `corpus` depends on, beside the pages."""

    @property
    def uniform_sources(self) -> list[int]:
        """Numbers of the sources that do not count."""
        return [number for number, source in enumerate(self.sources, start=1) if source.is_uniform]

    @classmethod
    def find(cls, config: CorpusConfig, *, last: Part | None = None, changes: Sequence[Recorded] = ()) -> "Inputs":
        """`last` are the pages that the knowledge base has already. With `changes`, all of them stay, and no file is read."""
        is_changed = bool(changes and last)
        kept = last if last and (is_changed or (config.entities and not config.dump and last.config["dumps"])) else None
        dumps, entities = ([], []) if is_changed else (_dumps(config), find_entities(config.entities))
        folded = Folded.read(last).joined(changes)
        sources = [PriorSource.open(spec) for spec in config.priors]
        persons = Location(config.persons) if config.persons else None
        dump_prints = kept.config["dumps"] if kept else [fingerprint(dump) for dump in dumps]
        # people write these by hand, and change a word of them: so all of it counts
        own_prints = [{"file": file.name, **checksum_of(file)} for file in entities]
        own_prints = last.config.get("entities", []) if is_changed and last else own_prints
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
        return cls(
            dumps=dumps,
            kept=kept,
            entities=entities,
            keeps_entities=is_changed,
            folded=folded,
            sources=sources,
            persons=persons,
            pages_identity={
                "dumps": dump_prints,
                **({"entities": own_prints} if own_prints else {}),
                **({"folded": folded.identity} if folded.files else {}),
            },
            corpus_identity=corpus_identity,
        )


def _dumps(config: CorpusConfig) -> list[Location]:
    if config.dump:
        return find_dumps(config.dump)
    return [] if config.entities else [Location(MINI_DUMP)]


def find_entities(patterns: Sequence[str]) -> list[Location]:
    """Files with entities that match the given paths, folders and globs."""
    found: list[Location] = []
    for pattern in patterns:
        matches = find_files(pattern)
        if not matches:
            raise DeepEdError(f"Cannot read {pattern}: No such file or directory.")
        found += matches
    return list(dict.fromkeys(found))
