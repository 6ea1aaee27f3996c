"""Claim: the cost of ingest grows in proportion to the dump, and a worker's memory not at all.

python benchmarks/corpus_scale.py --dump samplewiki-pages-articles-multistream.xml.bz2

Ingests a quarter, a half and all of a multistream dump, and prints what each cost; the baseline is the quarter's cost per
megabyte. docs/scale.md takes its figures from here.
"""

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from _harness import finish, parser_of

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidump import cut_dump
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.cluster import ensure_ray
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location

FRACTIONS = (0.25, 0.5, 1.0)


def head_of(dump: Path, fraction: float, target: Path) -> Path:
    """The first streams of a dump, about this fraction of its bytes; a dump may end after any stream."""
    shards = cut_dump(Location(dump), shard_bytes=1)
    size = next(shard.offsets[-1] for shard in shards if shard.offsets[-1] >= fraction * dump.stat().st_size)
    with open(dump, "rb") as source, open(target, "wb") as sink:
        while size and (block := source.read(min(size, 2**24))):
            sink.write(block)
            size -= len(block)
    return target


def measure(dump: Path, folder: Path) -> dict[str, Any]:
    kb = KnowledgeBase(folder / "kb", create=True)
    start = time.perf_counter()
    summary = build_corpus(kb, CorpusConfig(dump=(str(dump),)))
    seconds = time.perf_counter() - start
    parts = {
        name: sum(file["bytes"] for file in part["files"].values()) for name, part in kb.manifest()["parts"].items()
    }
    return {
        "dump_mb": dump.stat().st_size / 1e6,
        "seconds": seconds,
        "worker_gib": summary["peak_worker_gib"],
        "driver_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "pages_mb": parts["pages"] / 1e6,
        "corpus_mb": parts["corpus"] / 1e6,
        **{name: summary[name] for name in ("pages", "links", "entities", "mentions", "tokens")},
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, required=True, help="a multistream dump, .xml.bz2")
    args = parser.parse_args()
    ensure_ray()
    cores = int(ray.cluster_resources()["CPU"])
    rows = []
    for fraction in FRACTIONS:
        with tempfile.TemporaryDirectory(prefix="deeped-scale-") as name:
            folder = Path(name)
            rows.append(measure(head_of(args.dump, fraction, folder / "dump.xml.bz2"), folder))
    print(table(list(rows[0]), [tuple(row.values()) for row in rows]), "\n")
    finish(
        args,
        claim="ingest, megabytes of dump per core-second: all of the dump against a quarter of it",
        unit="MB",
        ours=rows[-1]["dump_mb"] / rows[-1]["seconds"] / cores,
        baseline=rows[0]["dump_mb"] / rows[0]["seconds"] / cores,
        baseline_name="a quarter",
        sizes=rows,
    )


if __name__ == "__main__":
    main()
