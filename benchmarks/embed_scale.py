"""Claims: two workers embed nearly twice as fast as one, and the cost per entity does not grow with their number.

python benchmarks/embed_scale.py --kb KB

Times the shards alone, on workers that are already running; starting Ray and its workers takes a few seconds, once.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import ray
from _harness import finish, parser_of

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import shards, trainer
from deeped_ray.embeddings.config import Methods, ShardConfig
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running import tasks
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location

SIZES = (1_000, 10_000, 100_000, 270_000)


def warm_up(item: int) -> int:
    time.sleep(0.5)
    return item


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    args = parser.parse_args()
    kb = KnowledgeBase(args.kb)
    corpus, words = kb.open("corpus"), kb.open("words")
    methods, sharding = Methods(), ShardConfig(shard_words=500_000)
    noise = trainer._noise(Words(words), methods, None)
    with tempfile.TemporaryDirectory() as folder:
        shared = trainer._share(Location(folder), corpus, words, noise, methods, sharding, None, False, None)

    # entities in random order, so that every size has the same mix of long and short pages
    order = np.random.default_rng(0).permutation(len(Catalogue(corpus)))
    rows = []
    shards.embed_range(np.sort(order[:100]), shared)
    for size in [size for size in SIZES if size < len(order)] + [len(order)]:
        chosen = np.sort(order[:size])
        start = time.process_time()
        for piece in np.array_split(chosen, max(1, size // 20_000)):
            shards.embed_range(piece, shared)
        rows.append((size, (time.process_time() - start) / size * 1e6))
    print(table(["entities", "microseconds of processor time an entity"], rows), "\n")

    seconds = {}
    for workers in (1, 2):
        ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        tasks.run("warm up", warm_up, range(4 * workers))
        with tempfile.TemporaryDirectory() as folder:
            shards.train_shards(shared, Location(folder))  # workers import and map what they need
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            shards.train_shards(shared, Location(folder))
            seconds[workers] = time.perf_counter() - start
        ray.shutdown()
    finish(
        args,
        claim=f"embedding {len(order):,} entities by Ray tasks, shard files written",
        unit="entities",
        ours=len(order) / seconds[2],
        baseline=len(order) / seconds[1],
        baseline_name="one worker",
        microseconds_by_size=dict(rows),
    )


if __name__ == "__main__":
    main()
