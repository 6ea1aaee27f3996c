"""Claim: probabilities mean what they say. Draws how often answers of a probability are right, and risk against coverage.

python benchmarks/certainty.py --kb KB --dataset aida:testa.tsv.gz --dataset wned:ace2004 --picture certainty.png

The last table says what a threshold brings on each set: precision, and in brackets the share of mentions that are answered;
then the lowest threshold with a precision of 90% and of 95%.

Left: the share of right answers among those with about the same probability; on the diagonal the two are equal. Right: the
share of wrong answers if only the most certain ones are given.
"""

from pathlib import Path
from typing import Any

from _harness import parser_of, write_json
from matplotlib.figure import Figure

from deeped_ray.evaluation.certainty import Answers
from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.report import EvaluationConfig, Report, evaluate
from deeped_ray.evaluation.tables import report_text
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.console import table

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
PRECISIONS = (0.9, 0.95)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", required=True, help="knowledge base with a linker")
    parser.add_argument("--dataset", action="append", required=True, help=SPECS)
    parser.add_argument("--model", choices=("prior", "local", "global"), default="global")
    parser.add_argument("--picture", type=Path, help="draw the curves into this PNG")
    args = parser.parse_args()
    config = EvaluationConfig(dataset=tuple(args.dataset), model=args.model)
    reports = evaluate(KnowledgeBase(args.kb), config)
    print(report_text(reports), end="\n\n")
    print(table(["threshold", *(report.name for report in reports)], threshold_rows(reports)))
    if args.picture:
        draw(reports, args.picture)
    write_json(args, results=[{"dataset": report.dataset, **report.certainty} for report in reports])


def threshold_rows(reports: list[Report]) -> list[list[str]]:
    """What a threshold brings, and which one a precision takes."""
    answers = [report.result.certainty for report in reports]

    def brought(each: Answers, threshold: float) -> str:
        precision, covered = each.precision_at(threshold), (each.probability >= threshold).mean()
        return "-" if precision is None else f"{100 * precision:.1f} ({100 * covered:.1f})"

    def needed(each: Answers, precision: float) -> str:
        threshold = each.threshold_at(precision)
        return "-" if threshold is None else f"{threshold:.2f}"

    return [
        *([f"{threshold}", *(brought(each, threshold) for each in answers)] for threshold in THRESHOLDS),
        *([f"for {precision:.0%}", *(needed(each, precision) for each in answers)] for precision in PRECISIONS),
    ]


def draw(reports: list[Report], path: Path) -> None:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    reliability, risk = figure.subplots(1, 2)
    reliability.plot([0, 1], [0, 1], color="gray", lw=1, ls="--")
    for report in reports:
        answers = report.result.certainty
        bins = [each for each in answers.bins if each.answers >= 10]
        label = f"{report.name} (ECE {answers.ece:.3f})"
        reliability.plot([each.probability for each in bins], [each.right for each in bins], ".-", label=label)
        covered, precision = answers.curve
        risk.plot(covered, 1 - precision, label=f"{report.name} (AUROC {answers.auroc or 0:.3f})")
    _label(reliability, "probability of the answer", "share that is right")
    _label(risk, "coverage: share of mentions answered, most certain first", "risk: share of these that is wrong")
    figure.savefig(path, dpi=120)


def _label(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


if __name__ == "__main__":
    main()
