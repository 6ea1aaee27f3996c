"""Claim: no driver's memory grows with the wiki, nor what a megabyte of dump costs.

python benchmarks/growth.py --dump samplewiki-pages-articles-multistream.xml.bz2 --sizes 1 3 10 --word-vectors vectors.bin.gz
python benchmarks/growth.py --dump samplewiki-pages-articles-multistream.xml.bz2 --sizes 0.05 0.1 --s3

Writes wikis of these sizes (`bigwiki`), and makes a knowledge base of each: ingest, word vectors, entity vectors, index, and
documents linked by prior. Each stage is a process of its own with a local Ray of its own, as jobs are, so its memory is its
own too. `pieces` are the batches of spilled files that tasks of ingest read: on object storage, a request or two each. With
--s3 the knowledge base lies on a real S3 API (moto) on loopback, which counts requests and bytes.

With --work, dumps, knowledge bases and figures stay in that folder, and the same command goes on where a killed one was. A
stage that was killed costs what all attempts took together: times are added, and the most memory counts. --write compares
the lines of `deeped plan` with these wikis, which are larger than those they were fitted to, and extends their reach.
"""

import argparse
import contextlib
import functools
import json
import logging
import math
import multiprocessing
import operator
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray
from _fits import extended
from _harness import finish, parser_of
from bigwiki import Census, Dump, take_census, write_wiki
from scale import part_mb

from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.corpus.config import CorpusConfig, gathered_bytes_for
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.shuffle import MAX_RANGES, Plan, Shuffle
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.planning.coefficients import COEFFICIENTS
from deeped_ray.planning.meter import Cost, Meter
from deeped_ray.planning.plan import SPILLED_PER_BYTE
from deeped_ray.running.console import table

Row = dict[str, Any]
STAGES = ("ingest", "words", "vectors", "index", "linking")
BUCKET = "growth"
SAVED_EVERY_S = 5.0


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
def counted_pieces() -> Iterator[Counter[str]]:
    """By table, of all plans that the driver makes meanwhile."""
    found, plan = Counter[str](), Shuffle.plan

    def counting(self: Shuffle, table: str, *args: Any, **options: Any) -> Plan:
        made = plan(self, table, *args, **options)
        found[table] += made.num_pieces
        return made

    Shuffle.plan = counting  # type: ignore[method-assign]
    yield found
    Shuffle.plan = plan  # type: ignore[method-assign]


class Attempts:
    """What the attempts at a stage have cost. The last one is written every few seconds, as it may be killed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._earlier: list[Row] = json.loads(file.read_text()) if file.exists() else []
        self._ends = threading.Event()

    @contextlib.contextmanager
    def saving(self, meter: Meter, pieces: Counter[str]) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, args=(meter, pieces), daemon=True)
        thread.start()
        yield
        self._ends.set()
        thread.join()

    def _watch(self, meter: Meter, pieces: Counter[str]) -> None:
        while not self._ends.wait(SAVED_EVERY_S):
            self.save(meter.so_far(), pieces)

    def save(self, cost: Cost, pieces: Counter[str]) -> Row:
        """Of all attempts together."""
        made = [*self._earlier, {**cost._asdict(), "pieces": dict(pieces)}]
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(made))
        part.replace(self._file)
        return together(made)


def together(attempts: Sequence[Row]) -> Row:
    """Attempts as one: plans of a resumed attempt are made anew, so the most pieces of a table are all of them."""
    found: Row = {name: sum(each[name] for each in attempts) for name in ("driver_s", "worker_s", "ray_s", "wall_s")}
    found |= {name: max(each[name] for each in attempts) for name in ("driver_gib", "worker_gib", "disk_mb")}
    spent = [each["driver_s"] + each["worker_s"] for each in attempts]
    found["probe_s"] = sum(each["probe_s"] * s for each, s in zip(attempts, spent, strict=True)) / max(sum(spent), 1e-9)
    pieces: Counter[str] = functools.reduce(operator.or_, (Counter(each["pieces"]) for each in attempts))
    return {**found, "core_s": found["driver_s"] + found["worker_s"], "pieces": pieces.total(), "tries": len(attempts)}


def _measure(stage: str, root: str, args: argparse.Namespace, dump: str, folder: Path, answer: Any) -> None:
    """In a process of its own."""
    kb = KnowledgeBase(root, create=True)
    work, attempts = _work(stage, kb, args, dump, folder), Attempts(folder / f"{stage}.attempts.json")
    with Meter() as meter, counted_pieces() as pieces, attempts.saving(meter, pieces):
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
    answer.put({**attempts.save(meter.cost, pieces), "entities": entities})


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
    size: float, args: argparse.Namespace, census: Callable[[], Census], folder: Path, storage: Counted | None
) -> list[Row]:
    dump, figures = folder / "bigwiki-pages-articles-multistream.xml.bz2", folder / "figures.json"
    if not dump.exists():
        write_wiki(Dump(args.dump), dump, census(), size=size, seed=0, workers=args.workers)
    rows: dict[str, Row] = json.loads(figures.read_text()) if figures.exists() else {}
    for stage in args.stages:
        if stage not in rows:
            before = (storage.num_requests, storage.num_bytes) if storage else (0, 0)
            root = f"s3://{BUCKET}/{size}" if storage else str(folder / "kb")
            cost = measure(stage, root, args, dump, folder)
            if storage:
                requests, num_bytes = storage.num_requests - before[0], storage.num_bytes - before[1]
                cost |= {"requests": requests, "storage_mb": num_bytes / 1e6}
            rows[stage] = {"stage": stage, "size": size, "dump_mb": dump.stat().st_size / 1e6, **cost}
            figures.write_text(json.dumps(rows, indent=2))
        print(json.dumps(rows[stage]), flush=True)
    return [rows[stage] for stage in args.stages]


def sizes_of(kb: KnowledgeBase, dump_bytes: float, memory_gib: float) -> Row:
    """What ingest has made, by the names that the lines of `deeped plan` have for it."""
    gathered = gathered_bytes_for(int(memory_gib * 2**30))
    partitions = max(MAX_RANGES, math.ceil(SPILLED_PER_BYTE * dump_bytes / gathered))
    found = kb.open("pages").summary() | kb.open("corpus").summary()
    names = {"names": len(kb.open("corpus").array("titles.entities"))}
    files = kb.open("pages").files("titles-*.parquet")
    return {
        **names,
        "partition_bytes": dump_bytes / partitions,
        "words": found["tokens"],
        "titles": found["pages"],
        "targets": sum(file.reading(lambda source: pq.read_metadata(source).num_rows) for file in files),
        "vocabulary": found["vocabulary"],
        "pages_mb": part_mb(kb, "pages"),
        "corpus_mb": part_mb(kb, "corpus"),
        "names_mb": part_mb(kb, "corpus", prefixes=("titles.", "vocabulary.")),
    }


@contextlib.contextmanager
def folder_of(size: float, work: Path | None) -> Iterator[Path]:
    """For good below `work`; without, for as long as it is used."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="deeped-growth-") as name:
            yield Path(name)
        return
    folder = work / f"{size:g}"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, required=True, help="a real multistream dump, .xml.bz2")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="in sizes of it")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="in this order (default: all)")
    parser.add_argument("--word-vectors", help="as of jobs/build_corpus.py; default: learned from the dump")
    parser.add_argument("--memory-gib", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, help="folder for dumps and knowledge bases, which stay there")
    parser.add_argument("--write", action="store_true", help="let the lines of `deeped plan` for ingest reach as far")
    parser.add_argument("--s3", action="store_true", help="knowledge bases on an S3 API on loopback")
    args = parser.parse_args()
    if args.write and not args.work:
        parser.error("--write looks at the knowledge bases: give --work")
    if args.s3 and args.work:
        parser.error("--s3 keeps nothing: give no --work")
    census = functools.cache(lambda: take_census(Dump(args.dump), workers=args.workers))
    storage = Counted() if args.s3 else None
    rows: list[Row] = []
    with storage.running() if storage else contextlib.nullcontext():
        for size in args.sizes:
            with folder_of(size, args.work) as folder:
                rows += measure_size(size, args, census, folder, storage)
    columns = [name for name in rows[0] if name not in ("ray_s", "disk_mb", "probe_s", "driver_s", "worker_s")]
    print(table(columns, [[row[name] for name in columns] for row in rows]), "\n")
    first, last = ([row for row in rows if row["size"] == size] for size in (args.sizes[0], args.sizes[-1]))
    if "ingest" not in args.stages:
        return
    if args.write:
        larger = []
        for row in [each for each in rows if each["stage"] == "ingest"]:
            kb = KnowledgeBase(args.work / f"{row['size']:g}" / "kb")
            larger.append(row | sizes_of(kb, 1e6 * row["dump_mb"], args.memory_gib))
        known = extended(json.loads(COEFFICIENTS.read_text()), larger)
        known["made"]["reach"] = f"benchmarks/growth.py --sizes {' '.join(f'{size:g}' for size in args.sizes)}"
        COEFFICIENTS.write_text(json.dumps(known, indent=2) + "\n")
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
