"""Documents linked per second and core by the job, on Ray workers and with all its files, against `link_batch` in one process.

Both may use as many cores as there are workers. The same documents, raw text, go to both; both find the mentions too. The job reads JSON lines and writes Parquet. It is
run twice, on few documents and on all, so that the difference leaves out what a run costs once: processes that start,
libraries that load, maps that open.

python benchmarks/link_corpus.py --kb KB --workers 2
"""

import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import ray
from _harness import alternate, finish, parser_of, speeds

from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker

PARTITION = 500


def job(kb: Path, texts: list[str], folder: Path) -> Callable[[], None]:
    """Links the texts, each time into a new folder."""
    source = folder / f"{len(texts)}.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def run() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as output:
            config = CorpusLinkingConfig(input=(str(source),), output=output, partition_documents=PARTITION)
            link_corpus(KnowledgeBase(kb), config, DetectionConfig())

    return run


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--kb", type=Path, default=Path("kb/mini"), help="knowledge base with a linker (default: kb/mini)"
    )
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--documents", type=int, default=8000, metavar="N", help="documents to link (default: 8000)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="Ray workers (default: 2)")
    args = parser.parse_args()
    if not (args.kb / "manifest.json").exists():
        parser.error(f"no knowledge base at {args.kb}: run `make demo ONCE=1` first, or give --kb")
    some = [document.text for document in read_dataset(args.dataset)]
    texts = (some * (args.documents // len(some) + 1))[: args.documents]
    few = texts[: args.workers * PARTITION]

    os.environ["OMP_NUM_THREADS"] = str(args.workers)  # the threads of this process; Ray sets it for workers
    linker = Linker.open(args.kb)
    linker.link_batch([linker.document(text) for text in some])  # compile, and read what the maps point to
    alone = texts[:2000]

    ray.init(address="local", num_cpus=args.workers, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        link_few, link_all = (job(args.kb, each, Path(folder)) for each in (few, texts))
        link_few()  # starts the workers
        alone_s, few_s, all_s = alternate(
            lambda: linker.link_batch([linker.document(text) for text in alone], explain=False),
            *(link_few, link_all),
            rounds=5,
        )
    finish(
        args,
        claim=f"linking {len(texts):,} documents of raw text by jobs/link_corpus.py, {args.workers} workers, per core",
        unit="documents",
        ours=[(len(texts) - len(few)) / (more - less) / args.workers for more, less in zip(all_s, few_s, strict=True)],
        baseline=speeds(len(alone) / args.workers, alone_s),
        baseline_name=f"link_batch, 1 process, {args.workers} threads",
        seconds_all=statistics.median(all_s),
        documents_per_s_with_start=len(texts) / statistics.median(all_s),
    )


if __name__ == "__main__":
    main()
