"""Claim: the index finds 98% of the ten nearest entities in a tenth of the exact index's memory, at ten times its speed.

python benchmarks/index.py --kb KB --vectors 270000        # the first of a knowledge base's own
python benchmarks/index.py --kb KB --vectors 6000000       # more than there are: made up, 7.2 GB in a temporary folder
python benchmarks/index.py --vectors 100000                # without one: random directions, the hardest case

Made-up vectors have the covariance of the real ones: each is a real vector and a Gaussian of the real covariance, mixed
such that `--noise` of its variance is Gaussian. With 1 nothing is near to anything, as in no real data; the default
keeps neighbourhoods. The baseline compares with every vector, by FAISS, in the same run and with the same threads.
"""

import argparse
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from _harness import finish, parser_of
from jaxtyping import Float

from deeped_ray.embeddings.index import EntityIndex, IndexConfig, write_index
from deeped_ray.embeddings.recall import recall_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import add_set, make, parse_sets
from deeped_ray.running.console import table

DIMENSION = 300
BLOCK = 100_000


def write_vectors(
    path: Path, real: Float[np.ndarray, "E d"], num_vectors: int, noise: float
) -> Float[np.ndarray, "N d"]:
    """The first real vectors that are not zero; beyond their number, made-up ones, written block by block."""
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(num_vectors, real.shape[1]))
    known = np.flatnonzero(real.any(axis=1))
    rng = np.random.default_rng(0)
    sample = real[rng.permutation(known)[:BLOCK]]
    mean = sample.mean(axis=0)
    spectrum, directions = np.linalg.eigh(np.cov(sample, rowvar=False))
    spread = (directions * np.sqrt(np.maximum(spectrum, 0))).T.astype(np.float32)
    for start in range(0, num_vectors, BLOCK):
        size = min(BLOCK, num_vectors - start)
        if num_vectors <= len(known):
            vectors[start : start + size] = real[known[start : start + size]]
            continue
        gaussian = rng.standard_normal((size, len(spread)), dtype=np.float32) @ spread
        base = real[rng.choice(known, size)] - mean
        mixed = mean + np.sqrt(1 - noise) * base + np.sqrt(noise) * gaussian
        vectors[start : start + size] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    vectors.flush()
    return np.asarray(vectors)


def private_mb() -> float:
    """Memory of this process that no file backs: what another process would need again."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024 / 1e6


def opening_mb(folder: Path) -> float:
    """What a fresh process pays for the index after a search."""
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    before = private_mb()
    EntityIndex(folder, np.asarray(vectors)).search(vectors[:1], count=10)
    return private_mb() - before


class Peak(threading.Thread):
    """The most private memory while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mb = private_mb()
        self.start()

    def run(self) -> None:
        while True:
            self.mb = max(self.mb, private_mb())
            time.sleep(0.05)


def real_vectors(args: argparse.Namespace) -> Float[np.ndarray, "E d"]:
    if args.kb:
        return np.asarray(KnowledgeBase(args.kb).open("vectors").array("vectors"))
    return np.random.default_rng(0).standard_normal((4 * DIMENSION, DIMENSION), dtype=np.float32)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, help="knowledge base with the real vectors")
    parser.add_argument("--vectors", type=int, default=100_000, metavar="N", help="how many (default: 100000)")
    parser.add_argument("--queries", type=int, default=500, metavar="N", help="how many queries (default: 500)")
    parser.add_argument("--noise", type=float, metavar="X", help="default: 0.5, and 1 without --kb")
    add_set(parser, "--set probe_share=0.1 (default: index_kind=ivf-pq)")
    args = parser.parse_args()
    noise = args.noise if args.noise is not None else 0.5 if args.kb else 1.0
    with tempfile.TemporaryDirectory(prefix="deeped-index-") as name:
        folder = Path(name)
        vectors = write_vectors(folder / "vectors.npy", real_vectors(args), args.vectors, noise)
        peak = Peak()
        start, start_cpu = time.perf_counter(), time.process_time()
        write_index(folder, vectors, make(IndexConfig, {"index_kind": "ivf-pq", **parse_sets(args.set)}))
        build_s, build_cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            opened_mb = fresh.submit(opening_mb, folder).result()
        index = EntityIndex(folder, vectors)
        queries = np.random.default_rng(1).choice(args.vectors, min(args.queries, args.vectors), replace=False)
        figures = recall_of(index, vectors, queries)
        size = (folder / "entities.faiss").stat().st_size
    figures |= {
        "vectors": args.vectors,
        "kind": index.kind,
        "build_s": round(build_s, 1),
        "build_core_s": round(build_cpu_s, 1),
        "size_mb": round(size / 1e6, 1),
        "exact_mb": round(vectors.nbytes / 1e6, 1),
        "size_share": round(size / vectors.nbytes, 3),
        "private_mb_when_open": round(opened_mb, 1),
        "private_mb_at_most": round(peak.mb, 1),
    }
    print(table(["figure", "value"], [(name, str(value)) for name, value in figures.items()]), "\n")
    finish(
        args,
        claim=f"neighbours among {args.vectors:,} vectors, recall@10 {figures['recall_at_10']}",
        unit="queries",
        ours=figures["queries_per_s"],
        baseline=figures["exact_queries_per_s"],
        baseline_name="every vector",
        figures=figures,
    )


if __name__ == "__main__":
    main()
