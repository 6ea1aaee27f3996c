"""Claim: no driver's memory grows with the wiki, nor what a megabyte of dump costs.

python benchmarks/growth.py --dump samplewiki-pages-articles-multistream.xml.bz2 --sizes 1 3 10 --word-vectors vectors.bin.gz
python benchmarks/growth.py --dump samplewiki-pages-articles-multistream.xml.bz2 --sizes 0.05 0.1 --s3

Writes wikis of these sizes (`bigwiki`), and makes a knowledge base of each: ingest, word vectors, entity vectors, index, and
documents linked by prior. Each stage is a process of its own with a local Ray of its own, as jobs are, so its memory is its
own too. `pieces` are the batches of spilled files that tasks of ingest read: on object storage, a request or two each. With
--s3 the knowledge base lies on a real S3 API (moto) on loopback, which counts requests and bytes.
"""

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from _harness import finish, parser_of
from bigwiki import Dump, take_census, write_wiki

from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.shuffle import Plan, Shuffle
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.planning.meter import Meter
from deeped_ray.running.console import table

Row = dict[str, Any]
STAGES = ("ingest", "words", "vectors", "index", "linking")
BUCKET = "growth"


class Counted:
    """A real S3 API on loopback, and what goes through it."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self.num_requests = self.num_bytes = 0

    def _serve(self, environ: Any, start_response: Any) -> Any:
        self.num_requests += 1
        self.num_bytes += int(environ.get("CONTENT_LENGTH") or 0)

        def counting(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            is_body = environ["REQUEST_METHOD"] == "GET"
            self.num_bytes += sum(int(value) for name, value in headers if is_body and name == "Content-Length")
            return start_response(status, headers, *rest)

        return self._app(environ, counting)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Processes that start meanwhile reach it by the environment."""
        import boto3

        os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield
        self._server.shutdown()


def _work(stage: str, kb: KnowledgeBase, args: argparse.Namespace, dump: str, folder: Path) -> Callable[[], object]:
    if stage == "ingest":
        return lambda: build_corpus(kb, CorpusConfig(dump=(dump,), memory_gib=args.memory_gib))
    if stage == "words":
        return lambda: build_words(kb, WordVectorConfig(word_vectors=args.word_vectors))
    if stage == "vectors":
        return lambda: embed_entities(kb)
    if stage == "index":
        return lambda: build_index(kb, IndexConfig())
    texts = folder / "documents.jsonl"
    texts.write_text("".join(json.dumps({"text": each.text}) + "\n" for each in read_dataset("mini:test") * 50))
    config = CorpusLinkingConfig(input=(str(texts),), output=str(folder / "answers"), model="prior")
    return lambda: link_corpus(kb, config, DetectionConfig())


@contextlib.contextmanager
def counted_pieces() -> Iterator[list[int]]:
    """Of all plans that the driver makes meanwhile."""
    found, plan = list[int](), Shuffle.plan

    def counting(self: Shuffle, *args: Any, **options: Any) -> Plan:
        made = plan(self, *args, **options)
        found.append(made.num_pieces)
        return made

    Shuffle.plan = counting  # type: ignore[method-assign]
    yield found
    Shuffle.plan = plan  # type: ignore[method-assign]


def _measure(stage: str, root: str, args: argparse.Namespace, dump: str, folder: Path, answer: Any) -> None:
    """In a process of its own."""
    kb = KnowledgeBase(root, create=True)
    work = _work(stage, kb, args, dump, folder)
    with Meter() as meter, counted_pieces() as pieces:
        ray.init(
            address="local",
            num_cpus=args.workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        work()
        ray.shutdown()
    entities = kb.open("corpus").summary()["entities"]
    answer.put({**meter.cost._asdict(), "core_s": meter.cost.core_s, "pieces": sum(pieces), "entities": entities})


def measure(stage: str, root: str, args: argparse.Namespace, dump: Path, folder: Path) -> Row:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_measure, args=(stage, root, args, str(dump), folder, answer))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{stage} failed, see above")
    found: Row = answer.get()
    return found


def measure_size(
    size: float, args: argparse.Namespace, census: Any, folder: Path, storage: Counted | None
) -> list[Row]:
    dump = folder / "bigwiki-pages-articles-multistream.xml.bz2"
    write_wiki(Dump(args.dump), dump, census, size=size, seed=0, workers=args.workers)
    rows = []
    for stage in args.stages:
        before = (storage.num_requests, storage.num_bytes) if storage else (0, 0)
        root = f"s3://{BUCKET}/{size}" if storage else str(folder / "kb")
        cost = measure(stage, root, args, dump, folder)
        if storage:
            cost |= {"requests": storage.num_requests - before[0], "storage_mb": (storage.num_bytes - before[1]) / 1e6}
        rows.append({"stage": stage, "size": size, "dump_mb": dump.stat().st_size / 1e6, **cost})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, required=True, help="a real multistream dump, .xml.bz2")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="in sizes of it")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="in this order (default: all)")
    parser.add_argument("--word-vectors", help="as of jobs/build_corpus.py; default: learned from the dump")
    parser.add_argument("--memory-gib", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, help="folder for dumps and knowledge bases (default: a temporary one)")
    parser.add_argument("--s3", action="store_true", help="knowledge bases on an S3 API on loopback")
    args = parser.parse_args()
    census = take_census(Dump(args.dump), workers=args.workers)
    storage = Counted() if args.s3 else None
    rows: list[Row] = []
    with storage.running() if storage else contextlib.nullcontext():
        for size in args.sizes:
            with tempfile.TemporaryDirectory(prefix="deeped-growth-", dir=args.work) as name:
                rows += measure_size(size, args, census, Path(name), storage)
    columns = [name for name in rows[0] if name not in ("ray_s", "disk_mb", "probe_s", "driver_s", "worker_s")]
    print(table(columns, [[row[name] for name in columns] for row in rows]), "\n")
    first, last = ([row for row in rows if row["size"] == size] for size in (args.sizes[0], args.sizes[-1]))
    ingests = {place: next(row for row in each if row["stage"] == "ingest") for place, each in enumerate((first, last))}
    finish(
        args,
        claim=f"megabytes of dump per core-second of ingest: {args.sizes[-1]:g} times the sample against {args.sizes[0]:g}",
        unit="MB",
        ours=ingests[1]["dump_mb"] / ingests[1]["core_s"],
        baseline=ingests[0]["dump_mb"] / ingests[0]["core_s"],
        baseline_name=f"{args.sizes[0]:g} times",
        rows=rows,
    )


if __name__ == "__main__":
    main()
