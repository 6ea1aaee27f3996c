"""p(e|m) for candidate lists: how often a name was annotated with an entity, plus how often the entity is linked at all.

    p(e|m) = (c(m, e) + s(e)) / (c(m) + 1),    s(e) = share of e's links among the candidates of the list

c counts annotated mentions of the training documents, ignoring case. A training document must not see its own
annotations, nor those of its neighbours, which in newswire often tell the same story: see LEFT_OUT.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.storage.arrow import read_table
from deeped_ray.types import Document

# With 30 documents left out on each side, the rest of AIDA-train knows as many of a training document's surfaces as all
# of AIDA-train knows of test A's.
LEFT_OUT = 30


class MentionCounts:
    """Which entities the mentions of the training documents were annotated with."""

    def __init__(self) -> None:
        self._annotations: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Lower-cased surface -> (document number, entity)."""

    @classmethod
    def of(cls, documents: Iterable[Document], catalogue: Catalogue) -> "MentionCounts":
        counts = cls()
        for number, document in enumerate(documents):
            for mention in document.mentions:
                entity = catalogue.find_gold(mention)
                if entity is not None:
                    counts._annotations[document.surface(mention).lower()].append((number, entity))
        return counts

    def of_surface(self, surface: str, *, without: int | None = None) -> Counter[int]:
        """How often a surface has each entity, without the documents around number `without`."""
        found = self._annotations.get(surface.lower(), [])
        return Counter(entity for number, entity in found if without is None or abs(number - without) > LEFT_OUT)

    def priors(
        self, surface: str, entities: Sequence[int], num_links: Sequence[int], *, without: int | None = None
    ) -> list[PriorCandidate]:
        """The candidates of a list with their p(e|m), most probable first."""
        counts = self.of_surface(surface, without=without)
        total, total_links = counts.total(), sum(number + 1 for number in num_links)
        shares = [(number + 1) / total_links for number in num_links]
        candidates = [
            PriorCandidate(entity, (counts[entity] + share) / (total + 1), counts[entity] + share)
            for entity, share in zip(entities, shares, strict=True)
        ]
        return sorted(candidates, key=lambda candidate: (-candidate.prior, candidate.entity_id))

    def write(self, path: Path, catalogue: Catalogue) -> None:
        rows = [
            {"surface": surface, "title": catalogue.title(entity), "count": count}
            for surface in sorted(self._annotations)
            for entity, count in sorted(self.of_surface(surface).items())
        ]
        schema = pa.schema([("surface", pa.string()), ("title", pa.string()), ("count", pa.int32())])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)

    @classmethod
    def read(cls, path: Path, catalogue: Catalogue) -> "MentionCounts":
        counts = cls()
        for row in read_table(path).to_pylist():
            entity = catalogue.find(row["title"])
            if entity is not None:
                counts._annotations[row["surface"]] += [(-1, entity)] * row["count"]
        return counts
