"""p(e|m): how often a surface string, as a link, leads to an entity (section 6).

mentions.hashes.npy, mentions.arrow     the distinct mentions, in hash order
mentions.offsets.npy                    CSR rows: candidates of mention i are [offsets[i], offsets[i+1])
mentions.entities.npy, .counts.npy      candidates by falling count, and the counts behind their priors
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deeped_ray.artifacts import Part
from deeped_ray.corpus.strings import StringIndex, hash_order, write_strings
from deeped_ray.text import normalize_mention

MAX_CANDIDATES = 100


class PriorCandidate(NamedTuple):
    entity_id: int
    prior: float
    num_links: int
    """The count behind the prior."""


def write_priors(folder: Path, counts: Mapping[tuple[str, int], int]) -> None:
    """Write (mention, entity) -> count as the mention table; the best `MAX_CANDIDATES` entities of a mention are kept."""
    by_mention: dict[str, Counter[int]] = {}
    for (mention, entity_id), count in counts.items():
        by_mention.setdefault(mention, Counter())[entity_id] += count
    mentions = list(by_mention)
    mentions = [mentions[row] for row in hash_order(mentions)]
    offsets, entities, numbers = [0], list[int](), list[int]()
    for mention in mentions:
        ranked = sorted(by_mention[mention].items(), key=lambda item: (-item[1], item[0]))[:MAX_CANDIDATES]
        entities.extend(entity_id for entity_id, _ in ranked)
        numbers.extend(count for _, count in ranked)
        offsets.append(len(entities))
    write_strings(folder, "mentions", mentions)
    np.save(folder / "mentions.offsets.npy", np.array(offsets, dtype=np.int64))
    np.save(folder / "mentions.entities.npy", np.array(entities, dtype=np.int32))
    np.save(folder / "mentions.counts.npy", np.array(numbers, dtype=np.int32))


class MentionTable:
    """Reads the mention table of a corpus part."""

    def __init__(self, part: Part) -> None:
        self._mentions = StringIndex(part.path, "mentions")
        self._offsets = part.array("mentions.offsets")
        self._entities = part.array("mentions.entities")
        self._counts = part.array("mentions.counts")

    def __len__(self) -> int:
        return len(self._mentions)

    def candidates(self, surface: str) -> list[PriorCandidate]:
        """Candidates with p(e|m), most probable first; empty for a string that is never a link."""
        mention = normalize_mention(surface)
        row = self._mentions.find(mention)
        if row is None and mention.isupper():  # headlines: NEW YORK -> New York
            row = self._mentions.find(mention.title())
        if row is None:
            return []
        cells = slice(int(self._offsets[row]), int(self._offsets[row + 1]))
        counts = self._counts[cells]
        total = int(counts.sum())
        return [
            PriorCandidate(int(entity_id), int(count) / total, int(count))
            for entity_id, count in zip(self._entities[cells], counts, strict=True)
        ]
