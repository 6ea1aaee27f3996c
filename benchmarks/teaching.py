"""Claim: a wiki's own links teach the linker. How many does it take, and how much of the wiki?

python benchmarks/teaching.py --kb KB --dataset aida:testa.tsv.gz --dataset wned:ace2004 --picture links.png
python benchmarks/teaching.py --kb KB --dump wiki-multistream.xml.bz2 --word-vectors vectors.bin.gz --dataset ... --picture dump.png

The first fits the global model to the first 1,000, 3,000, ... links that the knowledge base keeps aside. The second builds
knowledge bases from slices of the dump (every n-th stream), each with links of its own to learn from; KB stands for the
whole dump. Both print accuracy on every data set, one seed, beside the prior's.
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from _harness import parser_of, write_json
from matplotlib.figure import Figure
from scale import slice_of

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.evaluation.report import evaluate_linker
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import ALL_BY_PRIOR, Linker
from deeped_ray.linking.scoring import FittedModel
from deeped_ray.running.cluster import ensure_ray
from deeped_ray.running.console import table
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit
from deeped_ray.types import Document, LinkerKind

LINKS = (1_000, 3_000, 10_000, 30_000)
SHARES = (0.05, 0.2, 0.5)
NAME = FitName("global", 0)


class Point(NamedTuple):
    """What a model that was taught by so much answers right, by data set."""

    size: float
    accuracy: dict[str, float]
    prior: dict[str, float]


def main() -> None:
    args = _arguments()
    ensure_ray()
    if args.dump:
        points, label, name = list(by_dump(args)), "share of the dump", "share"
    else:
        points, label, name = list(by_links(args.kb, args.links, args.dataset)), "links", "links"
    sets = [spec.rstrip("/").rpartition("/")[2] for spec in args.dataset]
    rows = [
        [point.size, *(f"{100 * point.accuracy[spec]:.1f} ({100 * point.prior[spec]:.1f})" for spec in args.dataset)]
        for point in points
    ]
    print(f"accuracy of the global model (of the prior) in %, by {label}")
    print(table([name, *sets], rows))
    if args.picture:
        draw(points, dict(zip(args.dataset, sets, strict=True)), label, args.picture)
    write_json(args, points=[point._asdict() for point in points])


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", required=True, help="knowledge base with links to learn from")
    parser.add_argument("--dataset", action="append", required=True, help=SPECS)
    parser.add_argument("--links", type=int, nargs="+", default=LINKS, help="numbers of links")
    parser.add_argument("--dump", type=Path, help="multistream dump to cut into slices")
    parser.add_argument("--word-vectors", help="for the slices")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="sizes of the slices")
    parser.add_argument("--picture", type=Path, help="draw the curves into this PNG")
    return parser.parse_args()


def by_links(kb_path: str, numbers: Sequence[int], datasets: Sequence[str]) -> Iterator[Point]:
    """The same knowledge base, taught by more and more of the links that it keeps aside."""
    kb = KnowledgeBase(kb_path)
    teaching = read_dataset("links:train", kb=kb)
    sizes = list(itertools.accumulate(len(document.mentions) for document in teaching))
    inputs = LinkerInputs(kb, CandidateConfig())
    examples = Examples.of(TrainingDocuments.of(teaching, read_dataset("links:dev", kb=kb)[:200]), inputs)
    prior = _accuracies(Linker(LinkerInputs(kb, ALL_BY_PRIOR), None), datasets, kb)
    for number in [*(number for number in numbers if number < sizes[-1]), sizes[-1]]:
        # a document of forty mentions is one window, so documents and encoded ones stand at the same places
        some = [encoded for encoded, size in zip(examples.train, sizes, strict=True) if size <= number]
        linker = _taught(inputs, Examples(**{**vars(examples), "train": some}))
        yield Point(number, _accuracies(linker, datasets, kb), prior)


def by_dump(args: argparse.Namespace) -> Iterator[Point]:
    """A knowledge base and a linker from every slice, and from the whole."""
    with tempfile.TemporaryDirectory() as folder:
        for share in sorted(args.shares):
            dump = slice_of(args.dump, share, Path(folder) / f"slice-{share}.xml.bz2")
            kb = KnowledgeBase(Path(folder) / f"kb-{share}", create=True)
            build_corpus(kb, CorpusConfig(dump=(str(dump),), min_links_without_page=1))
            build_words(kb, WordVectorConfig(word_vectors=args.word_vectors))
            embed_entities(kb)
            build_index(kb, IndexConfig())
            yield next(by_links(str(kb), [], args.dataset))._replace(size=share)
    yield next(by_links(args.kb, [], args.dataset))._replace(size=1.0)


def _taught(inputs: LinkerInputs, examples: Examples) -> Linker:
    torch.set_num_threads(2)
    run = Run()
    # few documents need more passes and smaller steps
    steps = 1 if len(examples.train) >= 500 else 4
    training = TrainingConfig(epochs=6 * steps, documents_per_step=8 // steps, validate_every=steps)
    for _ in Fit(NAME, examples, training, ModelConfig(), run).validations():
        pass
    weights = {name: tensor.numpy() for name, tensor in run.tensors[f"{NAME}.best"].items()}
    return Linker(inputs, FittedModel("global", ModelConfig(), weights))


def _accuracies(linker: Linker, datasets: Sequence[str], kb: KnowledgeBase) -> dict[str, float]:
    kind: LinkerKind = "global" if linker.model else "prior"
    documents: dict[str, list[Document]] = {spec: read_dataset(spec, kb=kb) for spec in datasets}
    return {
        spec: evaluate_linker(linker, found, dataset=spec, model=kind).result.scores.accuracy
        for spec, found in documents.items()
    }


def draw(points: Sequence[Point], sets: dict[str, str], label: str, path: Path) -> None:
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.subplots()
    for number, (spec, name) in enumerate(sets.items()):
        color = f"C{number}"
        axes.plot([p.size for p in points], [100 * p.accuracy[spec] for p in points], ".-", color=color, label=name)
        axes.plot([p.size for p in points], [100 * p.prior[spec] for p in points], ":", color=color)
    axes.set_xscale("log")
    axes.set_xlabel(f"{label} (dotted: the prior)")
    axes.set_ylabel("accuracy %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
