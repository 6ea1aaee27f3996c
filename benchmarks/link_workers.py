"""Claim: a document of `jobs/link_corpus.py` costs as much with two workers as with one, also if documents and answers are on S3.

python benchmarks/link_workers.py --kb KB --dataset aida:testb.tsv.gz --rounds 3

Costs are processor time of driver and workers. The job links few documents and many on the same Ray; the difference leaves
out what a run costs once. Numbers of workers and kinds of storage take turns. S3 is a real API (moto) on loopback, in a
process of its own, whose time does not count; the knowledge base stays on disk.
"""

import argparse
import json
import logging
import multiprocessing
import os
import statistics
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from _harness import parser_of, write_json

from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.planning.meter import Meter
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location

BUCKET = "linked"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
WORKERS = (1, 2)


def _serve(ports: Any) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line a request otherwise
    app: Any = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    ports.put(server.server_port)
    server.serve_forever()


@contextmanager
def s3() -> Iterator[None]:
    """Processes that start meanwhile reach it by the environment."""
    import boto3

    context = multiprocessing.get_context("spawn")
    ports: Any = context.Queue()
    process = context.Process(target=_serve, args=(ports,), daemon=True)
    process.start()
    os.environ |= {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports.get()}"}
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    yield
    process.terminate()


def core_seconds(texts: list[str], root: Location, args: argparse.Namespace) -> float:
    folder = root / uuid.uuid4().hex
    folder.make_folder()
    (folder / "texts.jsonl").write_bytes("".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
    config = CorpusLinkingConfig(
        input=(str(folder / "texts.jsonl"),), output=str(folder / "answers"), partition_documents=args.partition
    )
    with Meter() as meter:
        link_corpus(KnowledgeBase(args.kb), config, DetectionConfig())
    return meter.cost.core_s / meter.cost.probe_s  # at the speed that the machine had meanwhile


def cost(workers: int, root: Location, texts: list[str], args: argparse.Namespace) -> float:
    """Of a document, as a multiple of the probe."""
    ray.init(
        address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    few, many = (core_seconds(texts[:count], root, args) for count in (args.few, args.documents))
    ray.shutdown()
    return (many - few) / (args.documents - args.few)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="with a linker (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--documents", type=int, default=2000, metavar="N", help="(default: 2000)")
    parser.add_argument("--few", type=int, default=200, metavar="N", help="(default: 200)")
    parser.add_argument("--partition", type=int, default=100, metavar="N", help="documents of a task (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    args = parser.parse_args()
    some = [document.text for document in read_dataset(args.dataset)]
    texts = (some * (args.documents // len(some) + 1))[: args.documents]
    costs: dict[tuple[str, int], list[float]] = {}
    with s3(), tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name, root in (("disk", Location(folder)), ("S3", Location(f"s3://{BUCKET}/linked"))):
                for workers in WORKERS:
                    costs.setdefault((name, workers), []).append(cost(workers, root, texts, args))
                    print(name, workers, f"{costs[name, workers][-1]:.2f}", flush=True)
    base = statistics.median(costs["disk", 1])
    rows = [
        [name, workers, statistics.median(found), min(found), max(found), base / statistics.median(found)]
        for (name, workers), found in costs.items()
    ]
    print(table(["storage", "workers", "probes a document", "least", "most", "documents/core-s over disk, 1"], rows))
    write_json(args, costs={f"{name} {workers}": found for (name, workers), found in costs.items()})


if __name__ == "__main__":
    main()
