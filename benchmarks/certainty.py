"""Claim: probabilities mean what they say. Draws how often answers of a probability are right, and risk against coverage.

python benchmarks/certainty.py --kb KB --dataset aida:testa.tsv.gz --dataset wned:ace2004 --picture certainty.png

Left: the share of right answers among those with about the same probability; on the diagonal the two are equal. Right: the
share of wrong answers if only the most certain ones are given.
"""

from pathlib import Path
from typing import Any

from _harness import parser_of, write_json
from matplotlib.figure import Figure

from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.report import EvaluationConfig, Report, evaluate
from deeped_ray.evaluation.tables import report_text
from deeped_ray.knowledge.base import KnowledgeBase


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", required=True, help="knowledge base with a linker")
    parser.add_argument("--dataset", action="append", required=True, help=SPECS)
    parser.add_argument("--model", choices=("prior", "local", "global"), default="global")
    parser.add_argument("--picture", type=Path, help="draw the curves into this PNG")
    args = parser.parse_args()
    config = EvaluationConfig(dataset=tuple(args.dataset), model=args.model)
    reports = evaluate(KnowledgeBase(args.kb), config)
    print(report_text(reports))
    if args.picture:
        draw(reports, args.picture)
    write_json(args, results=[{"dataset": report.dataset, **report.certainty} for report in reports])


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
