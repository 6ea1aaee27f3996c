"""What parts of the model are worth: each study fits variations of the default and draws validation accuracy.

    rounds       accuracy against T, rounds of belief propagation (the paper's plot)
    kept-words   accuracy against R, context words that keep a weight (the paper's plot)
    f            heat map of f, by which evidence and prior are combined (the paper's figure 3)
    unary        the prior in the unary factor, or only in f
    product      max-product against sum-product messages
    forms        A, B, C as diagonals against full matrices
    departures   every place where text and code of the paper differ, one by one
    training     the loss, the schedule, the bound on f's weights
    coreference  names of persons shared by words, by substring, or not at all; prior alone, candidates of the dump
    prior        what each source of p(e|m) gives for candidate lists, without any model

python benchmarks/studies.py rounds --kb KB --train aida:train.tsv.gz --train-candidates ppr:train.tsv.gz \\
    --dev aida:testa.tsv.gz --dev-candidates ppr:testa.tsv.gz

A, B, C are diagonals, as in the paper, but where forms are compared. Accuracy is the best of a fit's validations, as by jobs/train_linker.py: mean and 95% interval over --seeds.
"""

import argparse
import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from _harness import parser_of, write_json
from matplotlib.figure import Figure

from deeped_ray.evaluation.datasets import read_dataset, read_datasets
from deeped_ray.evaluation.metrics import mean_and_interval
from deeped_ray.evaluation.report import evaluate_linker
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import VARIANTS, ModelConfig, ModelKind
from deeped_ray.linking.encoding import MIN_PRIOR
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import ALL_BY_PRIOR, Linker
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.model import LinkerModel
from deeped_ray.running.console import table
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit
from deeped_ray.types import Document

BLUE, ORANGE = "tab:blue", "tab:orange"


# what the studies vary: the paper's candidates, and its form of A, B, C, with a thousand weights, in which small effects
# are seen best
PAPER = CandidateConfig(sources="prior", evidence="prior")
DIAGONAL = ModelConfig(forms="diagonal", hidden_layers=1)
FULL = ModelConfig(hidden_layers=1)


class Variation(NamedTuple):
    label: str
    model: ModelConfig = DIAGONAL
    kind: ModelKind = "global"
    training: dict[str, Any] = {}  # noqa: RUF012 - never changed
    x: float = 0.0


class Point(NamedTuple):
    variation: Variation
    mean: float
    interval: float


def with_model(label: str, **options: Any) -> Variation:
    return Variation(label, ModelConfig(**{"forms": "diagonal", "hidden_layers": 1, **options}))


STUDIES: dict[str, list[Variation]] = {
    "rounds": [Variation(f"T = {T}", replace(DIAGONAL, rounds=T), x=T) for T in (1, 2, 3, 5, 10, 20)],
    "kept-words": [
        Variation(f"{kind}, R = {R}", replace(DIAGONAL, local_kept_words=R, global_kept_words=R), kind, x=R)
        for kind in ("local", "global")
        for R in (5, 10, 25, 50, 100)
    ],
    "unary": [Variation("prior only in f"), with_model("prior in unary and in f", unary="score")],
    "product": [Variation("max-product"), with_model("sum-product", product="sum")],
    "forms": [
        Variation("local, diagonals", kind="local"),
        Variation("local, full matrices", FULL, kind="local"),
        Variation("local, full matrices, learning as fast", FULL, "local", {"matrix_rate": 1.0}),
        Variation("global, diagonals"),
        Variation("global, full matrices", FULL),
        Variation("global, full matrices, learning as fast", FULL, "global", {"matrix_rate": 1.0}),
    ],
    "departures": [
        with_model("deep-ed: all as in the code", variant="deep-ed"),
        *(
            with_model(f"... but {name.replace('_', ' ')}: {value}", variant="deep-ed", **{name: value})
            for name, value in {"hidden_layers": 2, **VARIANTS["paper"]}.items()
        ),
        with_model("paper: all as in the text", variant="paper", hidden_layers=2),
    ],
    "training": [
        Variation("default"),
        Variation("ranking loss, margin 0.01", training={"loss": "margin"}),
        with_model("weights of f bounded by 1", max_norm=1.0),
        with_model("Psi and Phi not scaled", psi_scale=1.0),
        Variation("one document a step", training={"documents_per_step": 1}),
        Variation("gold entity inserted", training={"insert_gold": True}),
        Variation(
            "1e-4, then 1e-5 above 90%, 30 epochs",
            training={
                "schedule": "drop",
                "learning_rate": 1e-4,
                "final_learning_rate": 1e-5,
                "documents_per_step": 1,
                "epochs": 30,
                "validate_every": 5,
            },
        ),
    ],
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("study", choices=[*STUDIES, "f", "coreference", "prior"])
    parser.add_argument("--kb", type=Path, required=True)
    for split in ("train", "dev"):
        parser.add_argument(f"--{split}", action="append", required=True, metavar="SPEC")
        parser.add_argument(f"--{split}-candidates", action="append", default=[], metavar="ppr:FILE")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, help="picture (default: docs/study-STUDY.png)")
    args = parser.parse_args()
    out = args.out or Path("docs") / f"study-{args.study}.png"
    if args.study == "coreference":
        compare_coreference(args, out)
        return
    training = TrainingConfig(
        train=tuple(args.train),
        dev=tuple(args.dev),
        train_candidates=tuple(args.train_candidates),
        dev_candidates=tuple(args.dev_candidates),
        seeds=args.seeds,
    )
    if args.study == "prior":
        compare_priors(args, training, out)
        return
    bench = Bench(KnowledgeBase(args.kb), training)
    if args.study == "f":
        draw_f(bench, out)
        return
    points = [bench.run(variation) for variation in STUDIES[args.study]]
    rows = [(point.variation.label, 100 * point.mean, 100 * point.interval) for point in points]
    print(table(["", "accuracy %", "± 95%"], rows))
    draw_lines(points, args.study, out) if points[0].variation.x else draw_bars(points, args.study, out)
    write_json(args, study=args.study, seeds=args.seeds, points=[point[1:] for point in points], rows=rows)


def inputs_of(
    kb: KnowledgeBase, candidates: CandidateConfig, training: TrainingConfig, train: Sequence[Document]
) -> LinkerInputs:
    """As jobs/train_linker.py makes them."""
    inputs = LinkerInputs(kb, candidates, lists=CandidateLists([*training.train_candidates, *training.dev_candidates]))
    if training.train_candidates:
        inputs.counts = MentionCounts.of(train, inputs.catalogue)
    return inputs


class Bench:
    """Documents encoded once, models fitted on them many times."""

    def __init__(self, kb: KnowledgeBase, training: TrainingConfig) -> None:
        self.training = training
        self._documents = TrainingDocuments.of(read_datasets(training.train), read_datasets(training.dev))
        self._inputs = inputs_of(kb, PAPER, training, self._documents.train)

    @functools.cache  # noqa: B019 - there is one
    def examples(self, *, insert_gold: bool) -> Examples:
        return Examples.of(self._documents, self._inputs, insert_gold=insert_gold)

    def fit(self, variation: Variation, seed: int) -> Run:
        training, run = replace(self.training, **variation.training), Run()
        examples = self.examples(insert_gold=training.insert_gold)
        for _ in Fit(FitName(variation.kind, seed), examples, training, variation.model, run).validations():
            pass
        return run

    def run(self, variation: Variation) -> Point:
        runs = [self.fit(variation, seed) for seed in self.training.all_seeds]
        mean, interval = mean_and_interval([max(row.dev_accuracy for row in run.history) for run in runs])
        print(f"{variation.label}: {100 * mean:.2f} ± {100 * interval:.2f}", flush=True)
        return Point(variation, mean, interval)


def draw_lines(points: Sequence[Point], study: str, out: Path) -> None:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for color, kind in ((BLUE, "local"), (ORANGE, "global")):
        line = [point for point in points if point.variation.kind == kind]
        if line:
            x, y, error = zip(*((p.variation.x, 100 * p.mean, 100 * p.interval) for p in line), strict=True)
            axes.errorbar(x, y, error, color=color, marker="o", capsize=3, label=kind)
    axes.set_xscale("log")
    ticks = sorted({point.variation.x for point in points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel({"rounds": "T, rounds of belief propagation", "kept-words": "R, kept context words"}[study])
    _finish(figure, axes, out)


def draw_bars(points: Sequence[Point], study: str, out: Path) -> None:
    figure = Figure(figsize=(7.5, 0.9 + 0.38 * len(points)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(study)
    values, errors = [100 * point.mean for point in points], [100 * point.interval for point in points]
    colors = [BLUE if point.variation.kind == "local" else ORANGE for point in points]
    axes.barh([point.variation.label for point in points], values, xerr=errors, color=colors, capsize=3, height=0.6)
    axes.invert_yaxis()
    span = max(values) - min(values) + max(errors) + 0.2
    axes.set_xlim(min(values) - 0.5 * span, max(values) + max(errors) + 0.1 * span)
    axes.set_xlabel("validation accuracy %")
    axes.grid(alpha=0.3, axis="x")
    figure.savefig(out, dpi=120)
    print(f"wrote {out}")


def _finish(figure: Figure, axes: Any, out: Path) -> None:
    axes.set_ylabel("validation accuracy %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120)
    print(f"wrote {out}")


def draw_f(bench: Bench, out: Path) -> None:
    """f of a fitted local and a fitted global model over all evidence and priors that occur."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    priors = np.linspace(np.log(MIN_PRIOR), 0, 200)
    kinds: tuple[ModelKind, ModelKind] = ("local", "global")
    titles = ("context score Psi, scaled", "log belief")
    for axes, kind, title in zip(figure.subplots(1, 2), kinds, titles, strict=True):
        variation = Variation(kind, kind=kind)
        run = bench.fit(variation, bench.training.seed)
        weights = run.tensors[f"{FitName(kind, bench.training.seed)}.best"]
        model = LinkerModel(kind, variation.model, dimension=weights["A"].shape[0])
        model.load_state_dict(weights)
        low, high = (-2.0, 6.0) if kind == "local" else (-12.0, 0.0)
        evidence = np.linspace(low, high, 200)
        grid = torch.tensor(np.stack(np.meshgrid(evidence, priors), axis=-1), dtype=torch.float32)
        with torch.inference_mode():
            scores = model.f(grid).squeeze(-1).numpy()
        image = axes.imshow(
            scores - scores.mean(), origin="lower", aspect="auto", extent=(low, high, priors[0], priors[-1])
        )
        axes.contour(evidence, priors, scores, levels=12, colors="white", linewidths=0.5)
        axes.set(xlabel=title, ylabel="log p(e|m)", title=f"f of the {kind} model")
        figure.colorbar(image, ax=axes)
    figure.savefig(out, dpi=120)
    print(f"wrote {out}")


def compare_coreference(args: argparse.Namespace, out: Path) -> None:
    """Accuracy of the prior and gold recall at 30, on training and validation documents."""
    kb = KnowledgeBase(args.kb)
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    rows = []
    rules: tuple[Literal["none", "substring", "words"], ...] = ("none", "substring", "words")
    for number, rule in enumerate(rules):
        linker = Linker(LinkerInputs(kb, replace(ALL_BY_PRIOR, coreference=rule)), None)
        for offset, spec in enumerate([*args.train, *args.dev]):
            result = evaluate_linker(linker, read_dataset(spec), dataset=spec, model="prior").result
            name = spec.rpartition("/")[2]
            rows.append((rule, name, 100 * result.scores.accuracy, 100 * result.gold_recall))
            bar = axes.bar(
                number + 0.4 * offset,
                rows[-1][2],
                width=0.35,
                color=(BLUE, ORANGE)[offset % 2],
                label=name if not number else None,
            )
            axes.bar_label(bar, fmt="%.1f")
    print(table(["coreference", "data set", "prior accuracy %", "gold recall %"], rows))
    axes.set_xticks(range(3), ["none", "substring (deep-ed)", "words (paper)"])
    axes.set_ylabel("accuracy of the prior %")
    axes.legend()
    figure.savefig(out, dpi=120)
    print(f"wrote {out}")
    write_json(args, study="coreference", rows=rows)


def compare_priors(args: argparse.Namespace, training: TrainingConfig, out: Path) -> None:
    """Accuracy on the validation documents of the best candidate by links, by anchors of the dump, by annotations."""
    train, dev = read_datasets(training.train), read_datasets(training.dev)
    inputs = inputs_of(KnowledgeBase(args.kb), replace(PAPER, first_candidates=1000), training, train)
    annotations = inputs.counts
    rates: dict[str, list[float]] = {}
    for document in dev:
        inputs.counts = MentionCounts()
        by_links = inputs.first_candidates(document)
        for mention, candidates in zip(document.mentions, by_links, strict=True):
            surface, gold = document.surface(mention), inputs.catalogue.find_gold(mention)
            entities = np.array([candidate.entity_id for candidate in candidates], np.int64)
            links = np.array([candidate.prior for candidate in candidates])
            anchored = {each.entity_id: each.prior for each in inputs.mentions.candidates(surface)}
            anchors = np.array([anchored.get(entity, 0.0) for entity in entities.tolist()])
            counted = annotations.of_surface(surface)
            counts = np.array([float(counted[entity]) for entity in entities.tolist()])
            has_text = (inputs.catalogue.num_words[entities] > 0).astype(float)
            for name, score in {
                "any candidate that has a text": has_text,
                "any candidate that has an anchor": (anchors > 0).astype(float),
                "links of the candidate": links,
                "anchors of the dump, then links": anchors + 1e-6 * links,
                "anchors and links, averaged": anchors + links,
                "annotations of training documents, then anchors": counts + 1e-3 * anchors,
                "annotations, then links (as trained with)": counts + links,
                "annotations, anchors and links": counts + 0.5 * anchors + 0.5 * links,
            }.items():
                best = entities[score == score.max()] if len(score) else entities
                rates.setdefault(name, []).append(float((best == gold).mean()) if len(best) else 0.0)
    rows = [(name, 100 * float(np.mean(values))) for name, values in rates.items()]
    print(table(["prior", "accuracy %"], rows))
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([name for name, _ in rows], [rate for _, rate in rows], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set_xlim(0, 105)
    axes.set_xlabel("accuracy of the best candidate by prior alone %; ties share the credit")
    figure.savefig(out, dpi=120)
    print(f"wrote {out}")
    write_json(args, study="prior", rows=rows)


if __name__ == "__main__":
    main()
