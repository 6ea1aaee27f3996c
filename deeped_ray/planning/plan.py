"""What a knowledge base will cost: memory, disk, core-hours and wall-clock per stage, from measured coefficients.

What was measured elsewhere, or is assumed, says so beside its number.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from deeped_ray.corpus.config import LOT, gathered_bytes_for, shard_bytes_for
from deeped_ray.corpus.shuffle import COMBINED, MAX_RANGES
from deeped_ray.planning.coefficients import NOTHING, Coefficients, Estimate, Sizes, measured, total
from deeped_ray.planning.workload import GB, GIB, Cluster, Workload

SPILLED_KINDS = 7
"""Files that a shard of the dump leaves for reducers: titles, words, mentions, three tables of counts, occurrences."""
SPILLED_PER_BYTE = 4
"""Bytes in memory of the rows of the largest table, the words around links, for each byte of dump."""
TRAINING_CORES = 8
"""More a worker of Ray Train is not given unless asked for."""
BUSY_SHARE = 0.7
"""Of a replica's time that serving may plan with; beyond it requests queue."""
MANY_READS = 1_000_000


def sizes_of(work: Workload, cluster: Cluster, known: Coefficients) -> Sizes:
    """Everything that coefficients are multiplied with."""
    memory_bytes = int(cluster.memory_gib * GIB)
    partitions = max(MAX_RANGES, math.ceil(SPILLED_PER_BYTE * work.dump_bytes / gathered_bytes_for(memory_bytes)))
    shards = math.ceil(work.dump_bytes / shard_bytes_for(memory_bytes))
    return {
        "workers": cluster.cores,
        "words": work.num_words,
        "titles": work.num_pages + work.num_redirects,
        "targets": work.num_targets,
        "names": work.num_names,
        "lot": min(work.num_names, LOT),
        "entities": work.num_entities,
        "vocabulary": known.vocabulary_of(work.num_words),
        "file_words": work.file_words,
        "partitions": partitions,
        "partition_bytes": work.dump_bytes / partitions,
        "reads": SPILLED_KINDS * (MAX_RANGES * shards + partitions * math.ceil(partitions / MAX_RANGES / COMBINED)),
        "markup_bytes": max(0.0, work.dump_bytes - known.bytes_per_word * work.num_words),
    }


# -- stages


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a stage takes; memory in GiB that no file backs, disk in GB."""

    name: str
    cores: int
    """That can share in the work, where it can be shared."""
    driver_s: Estimate = NOTHING
    """Processor time of what one process does alone."""
    shared_s: Estimate = NOTHING
    """Of what is spread over cores."""
    start_s: Estimate = NOTHING
    """Of imports, and of opening what is needed, in all workers."""
    driver_gib: Estimate | None = None
    worker_gib: Estimate | None = None
    disk_gb: Estimate = NOTHING
    """Of finished parts, on the shared storage."""
    work_gb: Estimate = NOTHING
    """Of files that are removed when the stage is done."""
    cache_gb: Estimate = NOTHING
    """On every node, if the knowledge base is on object storage: what its processes map."""

    @property
    def core_s(self) -> Estimate:
        return total(self.driver_s, self.shared_s, self.start_s)

    @property
    def wall_s(self) -> Estimate:
        """If storage keeps up."""
        return total(self.driver_s, total(self.shared_s, self.start_s).times(1 / self.cores))


@dataclass(frozen=True)
class Plan:
    workload: Workload
    cluster: Cluster
    stages: list[Stage]
    serving: "Serving"
    bottleneck: str
    warnings: list[str]
    made: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """With the ends of every band, and the sizes that were filled in."""
        filled = {name: getattr(self.workload, name) for name in ("num_pages", "num_redirects", "num_entities")}
        return {
            "workload": {**asdict(self.workload), **filled, "dump_bytes": self.workload.dump_bytes},
            "cluster": asdict(self.cluster),
            "stages": [{"stage": stage.name, "gpu_hours": None, **_spelt(stage)} for stage in self.stages],
            "serving": {"replicas": self.serving.replicas, **_spelt(self.serving)},
            "bottleneck": self.bottleneck,
            "warnings": self.warnings,
            "coefficients": self.made,
        }


def _spelt(record: object) -> dict[str, Any]:
    """The estimates of a record, each with its band."""
    found = {name: getattr(record, name) for name in dir(record) if not name.startswith("_")}
    return {
        name: {"value": each.value, "low": each.low, "high": each.high}
        for name, each in found.items()
        if isinstance(each, Estimate)
    }


def make_plan(work: Workload, cluster: Cluster, known: Coefficients | None = None) -> Plan:
    known = known or measured()
    sizes = sizes_of(work, cluster, known)
    stages = [make(work, cluster, sizes, known) for make in _MAKERS]
    serving = _serving(work, cluster, sizes, known)
    return Plan(work, cluster, stages, serving, bottleneck(stages), warnings(cluster, stages, sizes), known.made)


def _start(stage: str, sizes: Sizes, cluster: Cluster, known: Coefficients) -> Estimate:
    return total(*(known.seconds(stage, who, sizes, cluster.speed) for who in ("driver_s", "worker_s")))


def _ingest(_: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    tasks = [("ingest", "worker_s"), ("reads", "core_s"), ("markup", "core_s")]
    # by arithmetic: hash and id of every word, of which the sample has too few to show
    vocabulary_gib = Estimate(16 * sizes["vocabulary"] / GIB, 1.5)
    return Stage(
        name="ingest",
        cores=cluster.cores,
        driver_s=known.seconds("ingest", "driver_s", sizes, cluster.speed),
        shared_s=total(*(known.seconds(*task, sizes, cluster.speed) for task in tasks)),
        start_s=_start("start", sizes, cluster, known),
        # by arithmetic: what it holds beside its imports (docs/scale.md); 0.59 GiB at twice the sample
        driver_gib=Estimate(0.4 + (40 * sizes["entities"] + 100 * sizes["vocabulary"]) / GIB, 1.3),
        worker_gib=total(known.at("ingest", "worker_gib", sizes), vocabulary_gib),
        disk_gb=total(*(known.gb("ingest", part, sizes) for part in ("pages_mb", "corpus_mb"))),
        work_gb=known.gb("ingest", "work_mb", sizes),
        cache_gb=known.gb("ingest", "names_mb", sizes),
    )


def _words(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    """Read from a file; learning them is for small corpora, and was not measured."""
    matrix_gb = 4 * work.dimension * sizes["vocabulary"] / GB
    return Stage(
        name="word vectors",
        cores=1,
        driver_s=known.seconds("words", "driver_s", sizes, cluster.speed),
        # by arithmetic: a place for each word, and the words themselves; vectors lie in files
        driver_gib=Estimate(0.3 + 130 * sizes["vocabulary"] / GIB, 1.5),
        disk_gb=Estimate(matrix_gb, 1.5),
    )


def _embedding(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    vectors_gb = known.gb("embedding", "part_mb", sizes).times(work.dimension / known.dimension)
    return Stage(
        name="entity vectors",
        cores=cluster.cores,
        driver_s=known.seconds("embedding", "driver_s", sizes, cluster.speed),
        shared_s=known.seconds("embedding", "worker_s", sizes, cluster.speed),
        start_s=_start("start", sizes, cluster, known),
        # by arithmetic: some numbers for each entity; x'_w lies in a file
        driver_gib=Estimate(0.4 + 50 * work.num_entities / GIB, 1.5),
        worker_gib=known.at("shard", "worker_gib", sizes),
        disk_gb=vectors_gb,
        work_gb=vectors_gb,
        cache_gb=total(known.gb("ingest", "corpus_mb", sizes), _words(work, cluster, sizes, known).disk_gb),
    )


def _index(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    """FAISS takes all cores of one node; names are sorted by one."""
    return Stage(
        name="index",
        cores=cluster.cores_per_node,
        shared_s=known.seconds("index", "core_s", sizes, cluster.speed),
        driver_gib=known.at("index", "driver_gib", sizes),  # FAISS: names and links lie in files (docs/scale.md)
        disk_gb=known.gb("index", "part_mb", sizes).times(work.dimension / known.dimension),
        cache_gb=_embedding(work, cluster, sizes, known).disk_gb,
    )


def _training(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    mentions = {**sizes, "mentions": work.training_mentions * work.seeds}
    return Stage(
        name="training",
        cores=min(cluster.cores_per_node, TRAINING_CORES),
        shared_s=known.seconds("training", "core_s", mentions, cluster.speed),
        worker_gib=known.at("training", "worker_gib", mentions),
        disk_gb=known.gb("training", "part_mb", mentions),
        cache_gb=_served_gb(work, cluster, sizes, known),
    )


def _linking(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Stage:
    mentions = {**sizes, "mentions": work.documents * work.mentions_per_document}
    is_asked = work.documents > 0
    return Stage(
        name="linking a corpus",
        cores=cluster.cores,
        shared_s=known.seconds("linking", "core_s", mentions, cluster.speed) if is_asked else NOTHING,
        start_s=_start("start-linking", mentions, cluster, known) if is_asked else NOTHING,
        worker_gib=_linker_gib(mentions, known),
        cache_gb=_served_gb(work, cluster, sizes, known),
    )


def _linker_gib(sizes: Sizes, known: Coefficients) -> Estimate:
    """A process with a linker: the codes of the index are the one thing that it does not share with others."""
    codes_gb = known.gb("index", "part_mb", {**sizes, "names": 0.0})
    return total(known.at("linking", "worker_gib", sizes), codes_gb.times(GB / GIB))


def _served_gb(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Estimate:
    """All parts but the pages."""
    parts = [make(work, cluster, sizes, known).disk_gb for make in (_words, _embedding, _index)]
    return total(known.gb("ingest", "corpus_mb", sizes), *parts)


_MAKERS = (_ingest, _words, _embedding, _index, _training, _linking)


class Serving(NamedTuple):
    """What the endpoint takes at the rate that was asked for."""

    replicas: int
    documents_per_s: Estimate
    """Of one replica, which keeps one core busy."""
    replica_gib: Estimate
    mapped_gb: Estimate
    """On every node, one copy for all its replicas."""


def _serving(work: Workload, cluster: Cluster, sizes: Sizes, known: Coefficients) -> Serving:
    each_s = known.seconds("serving", "core_s", {**sizes, "mentions": work.mentions_per_document}, cluster.speed)
    rate = Estimate(BUSY_SHARE / each_s.value, each_s.factor)
    replicas = max(
        2, math.ceil(work.documents_per_s / rate.low)
    )  # one alone would leave requests waiting if it is lost
    return Serving(replicas, rate, _linker_gib(sizes, known), _served_gb(work, cluster, sizes, known))


# -- conclusions


def bottleneck(stages: Sequence[Stage]) -> str:
    """The stage that takes longest, and what holds it up."""
    longest = max(stages, key=lambda stage: stage.wall_s.value)
    everything = sum(stage.wall_s.value for stage in stages)
    share = f"{longest.name}, {longest.wall_s.value / everything:.0%} of the wall-clock"
    if longest.driver_s.value > longest.wall_s.value / 2:
        return f"{share}; most of that is the driver's own work on one core, which more nodes do not shorten"
    if longest.name == "index":
        return f"{share}; it is built on one node, so more nodes do not shorten it, but more cores in one do"
    if longest.name == "training":
        return f"{share}; one worker of {longest.cores} cores trains: --num-workers takes more"
    return f"{share}; it is bound by cores: twice the nodes take half of it"


def warnings(cluster: Cluster, stages: Sequence[Stage], sizes: Sizes) -> list[str]:
    found = []
    memory = cluster.memory_per_node_gib
    for stage in stages:
        if stage.driver_gib and stage.driver_gib.high > memory:
            found.append(
                f"{stage.name}: the driver needs {_range(stage.driver_gib)} GiB; a node has {memory:g}. Run it on a larger head."
            )
        if stage.worker_gib and stage.cores > 1 and cluster.cores_per_node * stage.worker_gib.high > memory:
            fitting = int(memory / stage.worker_gib.high)
            found.append(
                f"{stage.name}: {cluster.cores_per_node} workers of {_range(stage.worker_gib)} GiB may not fit the {memory:g} GiB of a node; {fitting} do."
            )
    mapped = max(stage.cache_gb.high for stage in stages)
    if mapped > memory * GIB / GB:
        found.append(
            f"linking: up to {mapped:.0f} GB are mapped on a node, more than its {memory:g} GiB of memory: look-ups may wait for its disk."
        )
    if sizes["reads"] > MANY_READS:
        found.append(
            f"ingest: reducers read {sizes['reads'] / 1e6:.0f} million pieces of spilled files. On object storage each is a request; a larger --memory-gib makes fewer."
        )
    if cluster.gpus:
        found.append("GPUs: none of the stages was ever measured on one, so none is planned with.")
    return found


def _range(estimate: Estimate) -> str:
    return f"{estimate.low:.1f} to {estimate.high:.1f}"
