"""Finding entities by what their names look like, against comparing a mention with all names (rapidfuzz), in one run.

    python benchmarks/retrieval.py --kb KB --dataset aida:testa.tsv.gz --sizes 270000 520000 6000000

Names are those of the knowledge base. For a size above theirs, further ones are made of their words: two names, cut and
joined. Mentions are the surfaces of the data set, each looked up once, so that nothing is remembered. The ratio is of
mentions per second, at the first size; rapidfuzz comes with `pip install '.[bench]'`. With --whole, the whole step is timed
too: all sources, for all documents, with the memory that it takes of its own, and what of it the FAISS index takes. How
often it finds the right entity is told by the number of candidates that are kept.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from _harness import finish, parser_of

from deeped_ray.corpus import priors
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.name_filing import write_name_index
from deeped_ray.embeddings.name_index import NameIndex
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location
from deeped_ray.types import Document

SCANNED = 40
"""Mentions that are compared with all names: some seconds."""
ROUNDS = 5
KEPT = (4, 6, 8, 10, 12, 20)
"""Numbers of candidates."""


class Numbered:
    """A catalogue as the filing of names needs it: every name is an entity with some links."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = pa.array(names, pa.large_string())
        self.num_links = np.random.default_rng(0).zipf(1.5, len(names)).clip(max=10**6)
        self.is_person = np.zeros(len(names), bool)

    def titles(self, entity_ids: npt.NDArray[np.int64]) -> list[str]:
        found: list[str] = self._names.take(pa.array(entity_ids)).to_pylist()
        return found


def names_of(kb: KnowledgeBase, size: int) -> list[str]:
    """That many distinct names, with the words of the knowledge base's own."""
    table = MentionTable(kb.open("corpus"))
    own = [name for name in table.take(np.arange(len(table))) if len(name) > 2]
    rng = random.Random(0)
    rng.shuffle(own)
    names = dict.fromkeys(own[:size])
    while len(names) < size:
        one, other = rng.choice(own).split(), rng.choice(own).split()
        names[" ".join([*one[: rng.randint(1, 3)], *other[-rng.randint(1, 3) :]])] = None
    return list(names)


def make_index(folder: Path, names: Sequence[str]) -> NameIndex:
    """Every name is an entity of its own."""
    priors.reduce(priors.rows({(name, number): 1.0 for number, name in enumerate(names)}), folder / "piece")
    priors.join([folder / "piece"], folder)
    corpus = Part("corpus", "0", Location(folder), {})
    write_name_index(folder, MentionTable(corpus), Numbered(names))
    return NameIndex(Part("index", "0", Location(folder), {}), corpus)


def seconds_each(index: NameIndex, surfaces: Sequence[str]) -> npt.NDArray[np.float64]:
    times = []
    for surface in surfaces:
        start = time.perf_counter()
        index._find(surface)  # past what is remembered
        times.append(time.perf_counter() - start)
    return np.array(times)


def scan_seconds(names: Sequence[str], surfaces: Sequence[str]) -> float:
    from rapidfuzz import fuzz, process, utils

    start = time.perf_counter()
    for surface in surfaces:
        process.extract(surface, names, scorer=fuzz.token_set_ratio, processor=utils.default_process, limit=12)
    return (time.perf_counter() - start) / len(surfaces)


def private_mb() -> float:
    """Memory of this process alone. What it maps from files is not counted: other replicas map it too."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == "Private_Dirty:") / 1000


def whole_step(kb: KnowledgeBase, documents: Sequence[Document]) -> Iterator[tuple[str, float, float]]:
    """Processor milliseconds per mention, from text to what the model sees, and private megabytes beyond those before."""
    import faiss

    faiss.omp_set_num_threads(1)
    for name, config in (
        ("the prior alone (paper)", CandidateConfig(sources="prior", evidence="prior")),
        ("all sources", CandidateConfig()),
    ):
        before = private_mb()
        inputs = LinkerInputs(kb, config)
        inputs.open_all()
        warm, timed = documents[:20], documents[20:]
        for document in warm:
            list(inputs.encode(document))
        start = time.process_time()
        num_mentions = sum(len(window.mentions) for each in timed for window, _ in inputs.encode(each))
        yield name, 1000 * (time.process_time() - start) / max(1, num_mentions), private_mb() - before
    before = private_mb()
    index = faiss.read_index(str(kb.open("index").path / "entities.faiss"))
    yield f"of these, the FAISS index ({index.ntotal:,} entities)", 0.0, private_mb() - before


def recall(kb: KnowledgeBase, documents: Sequence[Document]) -> Iterator[tuple[int, float]]:
    """Number of candidates, and in % of mentions, whether the gold entity is one of them."""
    num_mentions = sum(len(document.mentions) for document in documents)
    for number in KEPT:
        inputs = LinkerInputs(kb, CandidateConfig(kept_by_context=number - CandidateConfig().kept_by_prior))
        found = sum(int((encoded.gold >= 0).sum()) for document in documents for _, encoded in inputs.encode(document))
        yield number, 100 * found / num_mentions


def main(args: argparse.Namespace) -> None:
    kb = KnowledgeBase(args.kb)
    documents = read_dataset(args.dataset)
    surfaces = sorted({document.surface(mention) for document in documents for mention in document.mentions})
    rows, ours, scans = [], [], []
    for size in args.sizes:
        names = names_of(kb, size)
        with tempfile.TemporaryDirectory() as folder:
            index = make_index(Path(folder), names)
            seconds_each(index, surfaces)
            rounds = []
            for number in range(ROUNDS):
                rounds.append(seconds_each(index, surfaces))
                if size == args.sizes[0]:
                    few = random.Random(number).sample(surfaces, min(SCANNED, len(surfaces)))
                    scans.append(1 / scan_seconds(names, few))
                    ours.append(1 / float(rounds[-1].mean()))
        times = 1000 * np.median(rounds, axis=0)
        rows.append((f"{size:,}", 1000 / times.mean(), times.mean(), *np.percentile(times, [50, 99]).tolist()))
    print(table(["names", "mentions/s", "mean ms", "p50 ms", "p99 ms"], rows), end="\n\n")
    if args.whole:
        print(table(["whole step", "processor ms a mention", "private MB"], [*whole_step(kb, documents)]), end="\n\n")
        print(table(["candidates", "with the gold entity, %"], [*recall(kb, documents)]), end="\n\n")
    finish(
        args,
        claim=f"looking up a name among {args.sizes[0]:,}",
        unit="mentions",
        ours=ours,
        baseline=scans,
        baseline_name="rapidfuzz, token_set_ratio with all names",
        sizes=rows,
    )


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="whose names (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help="whose mentions (default: mini:test)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[270_000], help="numbers of names")
    parser.add_argument("--whole", action="store_true", help="also time the whole step, and count what it finds")
    main(parser.parse_args())
