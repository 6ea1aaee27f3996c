"""How much there is to do, and on what: the options of `deeped plan`."""

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from deeped_ray.running.config import FLAG
from deeped_ray.types import DeepEdError, require_at_least

GIB, GB = 2**30, 1e9


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How much there is to do."""

    preset: Annotated[Literal["enwiki"] | None, "sizes of the English Wikipedia, where no others are given", FLAG] = (
        None
    )
    pages: Annotated[int, "articles of the dump; 0: as by --preset", FLAG] = 0
    redirects: Annotated[int, "redirects of the dump; default: 1.6 a page"] = 0
    words_per_page: Annotated[float, "words of text per article"] = 650.0
    dump_gb: Annotated[
        float, "the dump as it lies on disk, bzip2; default: 4.9 bytes a word, with its markup", FLAG
    ] = 0.0
    targets: Annotated[int, "distinct titles and link targets; default: titles, redirects, and one more a page"] = 0
    entities: Annotated[int, "entities; default: 1.2 a page, since titles that are linked twice count too"] = 0
    dimension: Annotated[int, "d, the width of word and entity vectors"] = 300
    file_words: Annotated[int, "words in the file of word vectors; GoogleNews has 3 million"] = 3_000_000
    training_mentions: Annotated[int, "annotated mentions to train on; AIDA train has 18,448"] = 18_448
    seeds: Annotated[int, "how often the models are fitted"] = 1
    documents: Annotated[int, "documents to link once the knowledge base is there", FLAG] = 0
    mentions_per_document: Annotated[float, "mentions of a document"] = 19.0
    documents_per_s: Annotated[float, "documents a second that the endpoint is to answer", FLAG] = 100.0

    def __post_init__(self) -> None:
        if not self.num_pages:
            raise DeepEdError("Give --pages, or --preset enwiki.")
        if min(value for value in asdict(self).values() if not isinstance(value, str | None)) < 0:
            raise DeepEdError("Sizes must not be negative.")
        require_at_least(1, self, "dimension", "seeds")

    @property
    def num_pages(self) -> int:
        return self.pages or (6_900_000 if self.preset else 0)

    @property
    def num_redirects(self) -> int:
        return self.redirects or round(1.6 * self.num_pages)

    @property
    def num_targets(self) -> int:
        return self.targets or 2 * self.num_pages + self.num_redirects

    @property
    def num_entities(self) -> int:
        return self.entities or round(1.2 * self.num_pages)

    @property
    def num_words(self) -> float:
        return self.words_per_page * self.num_pages

    @property
    def dump_bytes(self) -> float:
        return self.dump_gb * GB or 4.9 * self.num_words

    @property
    def num_names(self) -> int:
        """Titles and redirects that lead to an entity."""
        return self.num_redirects + self.num_entities


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """On what it is to run."""

    nodes: Annotated[int, "nodes, the head included", FLAG] = 1
    cores_per_node: Annotated[int, "cores of a node", FLAG] = 16
    memory_per_node_gib: Annotated[float, "memory of a node, in GiB", FLAG] = 64.0
    gpus: Annotated[int, "GPUs of all nodes; what they would save was never measured"] = 0
    memory_gib: Annotated[float, "`memory_gib` of ingest: what a worker may take, in GiB"] = 2.0
    speed: Annotated[float, "speed of a core, as a multiple of the machine's that was measured"] = 1.0

    def __post_init__(self) -> None:
        require_at_least(1, self, "nodes", "cores_per_node")
        require_at_least(0, self, "gpus")
        require_at_least(0.5, self, "memory_gib", "memory_per_node_gib")
        if self.speed <= 0:
            raise DeepEdError(f"`speed` must be above 0, not {self.speed}.")

    @property
    def cores(self) -> int:
        return self.nodes * self.cores_per_node
