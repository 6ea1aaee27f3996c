"""Linking by Ray Data with `LinkBatch` against jobs/link_corpus.py: speed, memory, and what is done again after a kill.

python benchmarks/ray_data.py --kb KB --dataset aida:testa.tsv.gz --workers 2

Both read the same JSON lines and write Parquet, twice: undisturbed, and with SIGKILL to a worker that links once a third of
the documents has been linked. Each run has a local Ray of its own, so its start is in its time. Workers count the
documents that they link in a file each; what is above the number of documents was done again.
"""

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.data
from _harness import finish, parser_of
from ray.data import ActorPoolStrategy

from deeped_ray.batch import LinkBatch
from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.planning.meter import Meter
from deeped_ray.running.console import table

COUNTS = "DEEPED_BENCHMARK_COUNTS"
PIECE = 500
"""Documents of a partition, and of a block."""
Run = Callable[[Path, Path, Path, int], object]


def count_documents() -> None:
    """In every worker, before it does anything: what is linked is counted, too."""
    from deeped_ray.linking.linker import Linker

    link = Linker.link_batch

    def counted(self: Linker, documents: Any, *rest: Any, **options: Any) -> Any:
        found = link(self, documents, *rest, **options)
        with open(Path(os.environ[COUNTS]) / str(os.getpid()), "a") as file:
            file.write(f"{len(documents)}\n")
        return found

    Linker.link_batch = counted  # type: ignore[method-assign]


def by_job(kb: Path, source: Path, output: Path, _: int) -> object:
    config = CorpusLinkingConfig(input=(str(source),), output=str(output), partition_documents=PIECE)
    return link_corpus(KnowledgeBase(kb), config, DetectionConfig())


def by_ray_data(kb: Path, source: Path, output: Path, workers: int) -> object:
    with open(source) as lines:
        num_blocks = sum(1 for _ in lines) // PIECE
    documents = ray.data.read_json(str(source)).repartition(num_blocks)
    linked = documents.map_batches(
        LinkBatch,
        fn_constructor_kwargs={"kb": str(kb.resolve())},
        batch_format="pyarrow",
        batch_size=128,
        compute=ActorPoolStrategy(size=workers),
    )
    return linked.write_parquet(str(output))


def counted_in(folder: Path) -> dict[int, int]:
    """Documents by worker."""
    return {int(file.name): sum(map(int, file.read_text().split())) for file in folder.iterdir()}


def kill_one(folder: Path, after: int, is_over: threading.Event) -> None:
    while not is_over.is_set():
        counts = counted_in(folder)
        if sum(counts.values()) >= after:
            os.kill(max(counts, key=counts.__getitem__), signal.SIGKILL)
            return
        time.sleep(0.05)


def measure(
    run: Run, kb: Path, source: Path, workers: int, num_documents: int, *, is_disturbed: bool
) -> tuple[Any, ...]:
    """Documents a second, GiB of the largest worker and of the driver, and documents linked again."""
    with tempfile.TemporaryDirectory() as name:
        counts = Path(name) / "counts"
        counts.mkdir()
        os.environ[COUNTS] = str(counts)
        is_over = threading.Event()
        killer = threading.Thread(target=kill_one, args=(counts, num_documents // 3, is_over))
        with Meter() as meter:
            ray.init(
                address="local",
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"worker_process_setup_hook": count_documents, "env_vars": {COUNTS: str(counts)}},
            )
            if is_disturbed:
                killer.start()
            run(kb, source, Path(name) / "answers", workers)
            is_over.set()
            ray.shutdown()
        again = sum(counted_in(counts).values()) - num_documents
    return num_documents / meter.cost.wall_s, meter.cost.worker_gib, meter.cost.driver_gib, again


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="with a linker (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--documents", type=int, default=8000, metavar="N", help="documents to link (default: 8000)")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    args = parser.parse_args()
    some = [document.text for document in read_dataset(args.dataset)]
    texts = (some * (args.documents // len(some) + 1))[: args.documents]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "documents.jsonl"
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        for who, run in (("link_corpus", by_job), ("Ray Data", by_ray_data)):
            measured = partial(measure, run, args.kb, source, args.workers, len(texts))
            rows += [(who, "a kill" if bad else "nothing", *measured(is_disturbed=bad)) for bad in (False, True)]
    print(table(["by", "disturbed by", "documents/s", "worker GiB", "driver GiB", "linked again"], rows), "\n")
    finish(
        args,
        claim=f"linking {len(texts):,} documents by Ray Data and LinkBatch, {args.workers} actors, start included",
        unit="documents",
        ours=rows[2][2],
        baseline=rows[0][2],
        baseline_name="jobs/link_corpus.py",
        rows=rows,
    )


if __name__ == "__main__":
    main()
