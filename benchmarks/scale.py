"""Claim: what a page, an entity and a document cost does not depend on how many there are, nor on how many work on them.

python benchmarks/scale.py --dump samplewiki-pages-articles-multistream.xml.bz2 --word-vectors vectors.bin.gz \\
    --kb KB --dataset aida:testa.tsv.gz [--write --train aida:train.tsv.gz --raw raw-pages-articles.xml.bz2 ...]

Ingests and embeds three slices of a dump and links three numbers of documents, on a local Ray of one and of
two CPUs. A slice is every n-th stream of the dump, so that all have the same mix of pages. Costs are processor time of
driver and workers, at the speed that the machine had meanwhile (`deeped_ray/meter.py`). Starting Ray and
importing torch in every worker is measured apart, as `start`. `--write` keeps what was measured as the coefficients of
`deeped plan`.
"""

import argparse
import bz2
import functools
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from _fits import CLAIM, coefficients, report
from _harness import parser_of, write_json
from link import MENTIONS, of_equal_size

from deeped_ray.corpus.config import LOT, CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.shuffle import MAX_RANGES, Shuffle, Spilled
from deeped_ray.corpus.wikidump import DumpStats, cut_dump, read_dump, read_siteinfo
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.embeddings.config import ShardConfig
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words, read_vectors
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.mini import MINI_DUMP
from deeped_ray.planning.coefficients import COEFFICIENTS
from deeped_ray.planning.meter import Meter
from deeped_ray.running import tasks
from deeped_ray.storage.location import Location
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import Document

SHARES = (1 / 16, 1 / 8, 1 / 4)
DOCUMENTS = (250, 500, 1_000)
TRAINING_DOCUMENTS = (50, 100, 200)
WORKERS = (1, 2)
CHUNK = 50
Row = dict[str, Any]
MINI_WORDS = WordVectorConfig(dimension=100, ppmi_window=30)
MIXED = "redirects.xml.bz2"
"""A slice with more redirects than the others, to tell their cost from that of text."""


# -- slices of data


def slice_of(dump: Path, share: float, target: Path, *, all_redirects: bool = False) -> Path:
    """Every n-th stream of a multistream dump, its head first, and on demand every stream of nothing but redirects."""
    shards = cut_dump(Location(dump), shard_bytes=1)
    with open(dump, "rb") as source, open(target, "wb") as sink:
        for number, shard in enumerate(shards):
            source.seek(shard.offsets[0])
            stream = source.read(shard.num_bytes)
            is_taken = number == 0 or int((number + 1) * share) > int(number * share)
            if is_taken or (all_redirects and _only_redirects(stream)):
                sink.write(stream)
    return target


def _only_redirects(stream: bytes) -> bool:
    xml = bz2.decompress(stream)
    return xml.count(b"<page>") == xml.count(b"<redirect ")


def write_documents(documents: Sequence[Document], target: Path) -> str:
    """As a data set of our own layout."""
    with open(target, "w") as sink:
        for document in documents:
            mentions = [{"start": each.start, "end": each.end, "title": each.gold} for each in document.mentions]
            sink.write(json.dumps({"name": document.name, "text": document.text, "mentions": mentions}) + "\n")
    return f"jsonl:{target}"


# -- measuring


@contextmanager
def started(num_workers: int, warm_up: Callable[[], object]) -> Iterator[Row]:
    """A local Ray whose workers have imported, opened and compiled what they need; yields what that took."""
    with Meter() as meter:
        ray.init(
            address="local",
            num_cpus=num_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        warm_up()
    try:
        yield _row(meter, num_workers)
    finally:
        ray.shutdown()


def measured(work: Callable[[], Any], num_workers: int, folder: Path | None = None) -> tuple[Any, Row]:
    """The result of some work, and what it cost."""
    with Meter(folder) as meter:
        result = work()
    return result, _row(meter, num_workers)


def _row(meter: Meter, num_workers: int) -> Row:
    cost = meter.cost
    return {"workers": num_workers, **cost._asdict(), "core_s": cost.core_s}


def part_mb(kb: KnowledgeBase, name: str, *, prefixes: tuple[str, ...] = ("",)) -> float:
    files: dict[str, Any] = kb.manifest()["parts"][name]["files"]
    return float(sum(record["bytes"] for file, record in files.items() if file.startswith(prefixes))) / 1e6


def measure_builds(args: argparse.Namespace, dumps: Sequence[Path], num_workers: int, folder: Path) -> Iterator[Row]:
    """Ingest, word vectors and entity vectors of every dump, by workers that have all imports behind them."""
    words = WordVectorConfig(word_vectors=args.word_vectors) if args.word_vectors else MINI_WORDS
    with started(num_workers, lambda: warm_up(folder / "start")) as cost:
        yield {"stage": "start", "size": num_workers, **cost}
        for number, dump in enumerate(dumps):
            kb = folder / f"{num_workers}-{number}"
            yield from measure_build(dump, kb, words, num_workers)
            shutil.rmtree(kb)


def warm_up(folder: Path) -> None:
    """All stages on next to nothing: what is left is what they take to start."""
    kb = KnowledgeBase(folder, create=True)
    build_corpus(kb, CorpusConfig(min_word_count=2))
    build_words(kb, MINI_WORDS)
    embed_entities(kb, sharding=ShardConfig(shard_words=10_000))
    shutil.rmtree(folder)


def measure_build(dump: Path, folder: Path, words: WordVectorConfig, num_workers: int) -> Iterator[Row]:
    kb = KnowledgeBase(folder, create=True)
    config = CorpusConfig(dump=(str(dump),), min_word_count=2 if dump.samefile(MINI_DUMP) else 10)
    summary, cost = measured(lambda: build_corpus(kb, config), num_workers, folder)
    sizes = {
        "mixed": dump.name == MIXED,
        "dump_mb": dump.stat().st_size / 1e6,
        "partition_bytes": dump.stat().st_size / MAX_RANGES,
        "words": summary["tokens"],
        "titles": summary["pages"],
        "targets": sum(pq.read_metadata(str(file)).num_rows for file in kb.open("pages").files("titles-*.parquet")),
        **_names(kb),
        **{name: summary[name] for name in ("redirects", "entities", "vocabulary", "links", "mentions")},
    }
    disk = {"pages_mb": part_mb(kb, "pages"), "corpus_mb": part_mb(kb, "corpus")}
    disk["work_mb"] = cost["disk_mb"] - sum(disk.values())
    disk["names_mb"] = part_mb(kb, "corpus", prefixes=("titles.", "vocabulary."))
    yield {"stage": "ingest", "size": sizes["dump_mb"], **sizes, **cost, **disk}
    _, cost = measured(lambda: build_words(kb, words), num_workers, folder)
    sizes["file_words"] = sum(1 for _ in read_vectors(words.word_vectors)) if words.word_vectors else 0
    yield {"stage": "words", "size": sizes["file_words"], **sizes, **cost, "part_mb": part_mb(kb, "words")}
    _, cost = measured(lambda: embed_entities(kb), num_workers, folder)
    yield {"stage": "embedding", "size": sizes["entities"], **sizes, **cost, "part_mb": part_mb(kb, "vectors")}


def _names(kb: KnowledgeBase) -> dict[str, int]:
    """Titles and redirects that lead to an entity, and how many of these a task holds at once."""
    names = len(kb.open("corpus").array("titles.entities"))
    return {"names": names, "lot": min(names, LOT)}


def measure_reducer(dump: Path, num_workers: int, folder: Path) -> Iterator[Row]:
    """What a worker holds that reduces all of a dump alone: how memory grows with a partition."""
    with started(num_workers, lambda: warm_up(folder / "start")):
        kb = KnowledgeBase(folder / "reducer", create=True)
        _, cost = measured(lambda: build_corpus(kb, CorpusConfig(dump=(str(dump),), partitions=1)), num_workers)
    size = dump.stat().st_size
    yield {"stage": "reducer", "size": size, "partition_bytes": size, **_names(kb), **cost}


_OPENED: dict[str, Linker] = {}


def link_chunk(documents: Sequence[Document], kb: str) -> int:
    """Task: answers with their reasons, as the endpoint gives them; a worker opens its linker once."""
    if kb not in _OPENED:
        _OPENED[kb] = Linker.open(kb)
    return sum(map(len, _OPENED[kb].link_batch(documents)))


def link_all(documents: Sequence[Document], kb: str) -> int:
    chunks = [documents[start : start + CHUNK] for start in range(0, len(documents), CHUNK)]
    return sum(tasks.run("link", link_chunk, chunks, kb).results)


def measure_linking(args: argparse.Namespace, num_workers: int) -> Iterator[Row]:
    kb, documents = str(args.kb), read_dataset(args.dataset)
    entities = KnowledgeBase(args.kb).open("corpus").summary()["entities"]
    few = of_equal_size(documents, count=2 * CHUNK * num_workers)
    with started(num_workers, lambda: link_all(few, kb)) as cost:
        yield {"stage": "start-linking", "size": num_workers, **cost}
        for size in DOCUMENTS:
            some = of_equal_size(documents, count=size)
            _, cost = measured(functools.partial(link_all, some, kb), num_workers)
            yield {"stage": "linking", "size": size, "entities": entities, "mentions": MENTIONS * size, **cost}


def measure_training(args: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Both models, one seed, in a copy of the knowledge base."""
    shutil.copytree(args.kb, folder / "training", copy_function=os.link)
    kb, documents = KnowledgeBase(folder / "training"), read_dataset(args.train)
    dev = write_documents(documents[-50:], folder / "dev.jsonl")
    with started(2, lambda: None):
        for size in (10, *TRAINING_DOCUMENTS):
            train = write_documents(documents[:size], folder / f"{size}.jsonl")
            training = TrainingConfig(train=(train,), dev=(dev,))
            work = functools.partial(train_linker, kb, training, ModelConfig(), CandidateConfig(), WorkerConfig())
            _, cost = measured(work, 2)
            mentions = sum(len(document.mentions) for document in documents[:size])
            yield {
                "stage": "training" if size > 10 else "start-training",
                "size": mentions,
                "mentions": mentions,
                "part_mb": part_mb(kb, "linker"),
                **cost,
            }


def measure_reads(folder: Path, *, num_files: int = 100) -> Row:
    """What a reducer pays for each file that it takes its few rows from: as many as shards of the dump."""
    rows = 4000
    table = pa.table({"id": np.arange(rows), "count": np.ones(rows)})
    shuffle, spilled = Shuffle(Location(folder), 2**40), Spilled()
    for number in range(num_files):
        spilled |= shuffle.spill(f"{number}", table, num_keys=rows)
    partitions = shuffle.plan("reads", spilled, num_keys=rows).partitions
    reads = len(partitions) * num_files
    _, cost = measured(lambda: [list(shuffle.slices(partition)) for partition in partitions], 0)
    return {"stage": "reads", "size": reads, "reads": reads, **cost}


def measure_markup(dump: Path) -> Row:
    """Raw wikitext, with its templates and references, to text and links."""
    site, pages = read_siteinfo(Location(dump)), read_dump(Location(dump), DumpStats())
    _, cost = measured(lambda: [parse_page(raw, site) for raw in pages], 0)
    return {"stage": "markup", "size": dump.stat().st_size, "markup_bytes": dump.stat().st_size, **cost}


def measure(args: argparse.Namespace) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="deeped-scale-", dir=args.work) as name:
        folder = Path(name)
        dumps = [slice_of(args.dump, share, folder / f"{share}.xml.bz2") for share in args.shares if args.dump]
        for num_workers in args.workers:
            yield from measure_builds(args, dumps or [MINI_DUMP], num_workers, folder)
        if args.write:
            yield from measure_for_plan(args, dumps, folder)
        for num_workers in args.workers if args.kb.exists() else ():
            yield from measure_linking(args, num_workers)


def measure_for_plan(args: argparse.Namespace, dumps: Sequence[Path], folder: Path) -> Iterator[Row]:
    """What a plan wants to know beside the claim."""
    num_workers = max(args.workers)
    mixed = slice_of(args.dump, args.shares[0], folder / MIXED, all_redirects=True)
    yield from measure_builds(args, [mixed], num_workers, folder)
    yield from measure_reducer(dumps[-1], num_workers, folder)
    yield from measure_training(args, folder)
    yield measure_reads(folder)
    for dump in args.raw:
        yield measure_markup(dump)


def main() -> None:
    args = options()
    if not args.dump:
        print("No --dump: one size only, the mini encyclopedia's, too small to say how anything scales.\n")
    if not args.kb.exists():
        print(f"No knowledge base at {args.kb}: linking is not measured. `make demo ONCE=1` makes kb/mini.\n")
    rows = []
    for row in measure(args):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(report(rows))
    write_json(args, claim=CLAIM, rows=rows)
    if args.write:
        COEFFICIENTS.write_text(json.dumps(coefficients(rows, _command(args)), indent=2) + "\n")


def _command(args: argparse.Namespace) -> str:
    """As it was given, without folders: they are nobody else's."""
    words = ["benchmarks/scale.py", "--write"]
    for name in ("dump", "word_vectors", "kb", "dataset", "train", "raw"):
        values = vars(args)[name] if name == "raw" else [vars(args)[name]]
        words += [f"--{name.replace('_', '-')}", *(re.sub(r"[^:]*/", "", str(value)) for value in values)]
    return " ".join(words)


def options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, help="a multistream dump, .xml.bz2 (default: the mini encyclopedia)")
    parser.add_argument("--word-vectors", help="word2vec or GloVe file (default: learned, d = 100)")
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="with a linker (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help=f"documents to link: {SPECS} (default: mini:test)")
    parser.add_argument("--train", help="with --write: documents to train on, as aida:FILE")
    parser.add_argument("--raw", type=Path, nargs="*", default=[], help="with --write: dumps of raw wikitext")
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES, help="of the dump (default: three)")
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS, help="(default: 1 2)")
    parser.add_argument("--work", type=Path, help="where temporary knowledge bases go (default: as the system says)")
    parser.add_argument("--write", action="store_true", help="keep the result as the coefficients of `deeped plan`")
    args = parser.parse_args()
    if args.write and not (args.dump and args.train and args.raw and args.word_vectors and args.kb.exists()):
        parser.error("--write wants all that is planned with: --dump, --word-vectors, --kb, --train and --raw")
    return args


if __name__ == "__main__":
    main()
