"""Scores as tables for people."""

from collections.abc import Mapping, Sequence

from deeped_ray.evaluation.detection import DetectionReport
from deeped_ray.evaluation.metrics import ERROR_KINDS, LINK_CLASSES, PRIOR_CLASSES, Share, mean_and_interval
from deeped_ray.evaluation.report import Case, Report, SeedScores
from deeped_ray.linking.views import describe as describe
from deeped_ray.running.console import PLAIN, Style, table


def report_table(reports: Sequence[Report], *, style: Style = PLAIN) -> str:
    """The scores that are usually quoted: one row per linker and data set."""
    headers = ["mentions", "accuracy %", "95% interval", "micro F1 %", "macro F1 %", "gold recall %", "kept %"]
    rows = []
    for report in reports:
        result, scores = report.result, report.result.scores
        low, high = result.intervals["accuracy"]
        rows.append(
            [
                result.mentions,
                _percent(scores.accuracy),
                f"{_percent(low)}-{_percent(high)}",
                *map(_percent, [scores.micro_f1, scores.macro_f1, result.gold_recall, report.gold_recall_kept]),
                int(report.mentions_per_s),
            ]
        )
    headers.append("mentions/s")
    if any(report.by_seed for report in reports):
        headers.append("over seeds %")
        over_seeds = [_over_seeds(report.over_seeds("accuracy")) for report in reports]
        rows = [[*row, found] for row, found in zip(rows, over_seeds, strict=True)]
    return _table_of(reports, headers, rows, style)


def detection_table(reports: Sequence[DetectionReport], *, style: Style = PLAIN) -> str:
    """Precision, recall and F1 of spans: one row per way to read the annotation."""
    headers = ["data set", "annotated mentions", "number", "found", "P %", "R %", "F1 %", "characters/s"]
    rows = [
        [
            report.name,
            scores.against,
            scores.annotated,
            scores.found,
            *map(_percent, (scores.precision, scores.recall, scores.f1)),
            int(report.characters_per_s),
        ]
        for report in reports
        for scores in report.scores
    ]
    return table(headers, rows, style=style)


def _over_seeds(accuracies: Sequence[float]) -> str:
    if not accuracies:
        return "-"
    mean, interval = mean_and_interval(accuracies)
    return f"{_percent(mean)} ± {100 * interval:.2f} ({len(accuracies)})"


def report_text(reports: Sequence[Report], *, style: Style = PLAIN) -> str:
    """All scores and errors, the usual scores first."""
    scores = [report.result.scores for report in reports]
    macro = [(s.macro_precision, s.macro_recall, s.macro_f1) for s in scores]
    micro = [(s.micro_precision, s.accuracy, s.micro_f1) for s in scores]
    rates = [[*map(_percent, first), *map(_percent, second)] for first, second in zip(micro, macro, strict=True)]
    errors = [[sum(report.result.errors.values()), *report.result.errors.values()] for report in reports]
    chances = dict.fromkeys((report.name, report.result.text_only) for report in reports)
    sources = list(dict.fromkeys(source for report in reports for source in report.result.gold_sources))
    hashes = dict.fromkeys((report.name, report.candidates_sha256) for report in reports)
    sections = [
        report_table(reports, style=style),
        "Precision (P), recall (R) and F1 in %, over mentions and as means over documents",
        _table_of(reports, ["micro P", "R", "F1", "macro P", "R", "F1"], rates, style),
        "Whether probabilities mean what they say, for mentions that have candidates; nil: none of the candidates is meant",
        _table_of(reports, list(_CERTAINTY), [_certainty_cells(report) for report in reports], style),
        "Mentions answered wrongly or not at all, by kind",
        _table_of(reports, ["errors", *(kind.replace("_", " ") for kind in ERROR_KINDS)], errors, style),
        "Where the gold entity came from, in % of all mentions",
        _table_of(reports, sources, [_source_cells(report, sources) for report in reports], style),
        "Accuracy in % by links to the gold entity, where it is a candidate; in brackets the mentions",
        _table_of(reports, list(LINK_CLASSES), [_share_cells(report.result.by_links) for report in reports], style),
        "Accuracy in % by prior of the gold entity, where it is a candidate; in brackets the mentions",
        _table_of(reports, list(PRIOR_CLASSES), [_share_cells(report.result.by_prior) for report in reports], style),
        "\n".join(f"candidates of {name}: sha256 {digest}" for name, digest in hashes),
        "\n".join(
            f"a pick among the candidates of {name} that have a text is right in {_percent(rate)}%"
            for name, rate in chances
        ),
        *(describe_case(report, case, style=style) for report in reports for case in report.cases),
    ]
    return "\n\n".join(sections)


def describe_case(report: Report, case: Case, *, style: Style = PLAIN) -> str:
    verdict = "right" if case.is_correct else "wrong"
    head = f"{report.name}, {report.model}, document {case.document!r}, gold {case.gold}: {verdict}"
    return f"{head}\n{describe(case.prediction, num_words=20, style=style)}"


def _table_of(reports: Sequence[Report], headers: Sequence[str], rows: Sequence[Sequence[object]], style: Style) -> str:
    named = [[report.name, report.model, *row] for report, row in zip(reports, rows, strict=True)]
    return table(["data set", "model", *headers], named, style=style)


_CERTAINTY = {
    "ECE": "ece",
    "AUROC": "auroc",
    "right at 0.9 %": "precision_at_threshold_90",
    "covered with 90% right %": "coverage_at_precision_90",
    "nil P %": "nil_precision",
    "nil R %": "nil_recall",
    "nil F1 %": "nil_f1",
}
"""Column -> key of `Report.certainty`."""


def _certainty_cells(report: Report) -> list[str]:
    cells = []
    for name, key in _CERTAINTY.items():
        value = report.certainty[key]
        by_seed = report.over_seeds(key) if key in SeedScores._fields else []
        mean, interval = mean_and_interval(by_seed) if len(by_seed) > 1 else (0.0, 0.0)
        over_seeds = f"; over seeds {mean:.3f} ± {interval:.3f}" if interval else ""
        cells.append(_percent(value) if name.endswith("%") or value is None else f"{value:.3f}{over_seeds}")
    return cells


def _source_cells(report: Report, sources: Sequence[str]) -> list[str]:
    return [_percent(report.result.gold_sources.get(source, 0.0)) for source in sources]


def _share_cells(shares: Mapping[str, Share]) -> list[str]:
    return [f"{_percent(share.accuracy)} ({share.mentions:,})" if share.mentions else "-" for share in shares.values()]


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f}"
