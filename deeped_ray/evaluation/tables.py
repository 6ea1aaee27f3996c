"""Plain text for people: aligned tables of scores, and answers with their reasons."""

from collections.abc import Mapping, Sequence

from deeped_ray.coefficients import BAND, Estimate, total
from deeped_ray.evaluation.detection import DetectionReport
from deeped_ray.evaluation.metrics import ERROR_KINDS, LINK_CLASSES, PRIOR_CLASSES, Share, mean_and_interval
from deeped_ray.evaluation.report import Case, Report
from deeped_ray.plan import Plan, Stage
from deeped_ray.types import Prediction


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain aligned columns: text to the left, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(header), *(len(row[i]) for row in cells)) if cells else len(header) for i, header in enumerate(headers)
    ]
    numeric = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(headers)), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def report_table(reports: Sequence[Report]) -> str:
    """The scores that are usually quoted, one row a linker and data set."""
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
        rows = [[*row, _over_seeds(report.by_seed)] for row, report in zip(rows, reports, strict=True)]
    return _table_of(reports, headers, rows)


def detection_table(reports: Sequence[DetectionReport]) -> str:
    """Precision, recall and F1 of spans, one row a reading of the annotation."""
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
    return table(headers, rows)


def _over_seeds(accuracies: Sequence[float]) -> str:
    if not accuracies:
        return "-"
    mean, interval = mean_and_interval(accuracies)
    return f"{_percent(mean)} ± {100 * interval:.2f} ({len(accuracies)})"


def report_text(reports: Sequence[Report]) -> str:
    """Everything there is to say for people, the usual scores first."""
    scores = [report.result.scores for report in reports]
    macro = [(s.macro_precision, s.macro_recall, s.macro_f1) for s in scores]
    micro = [(s.micro_precision, s.accuracy, s.micro_f1) for s in scores]
    rates = [[*map(_percent, first), *map(_percent, second)] for first, second in zip(micro, macro, strict=True)]
    errors = [[sum(report.result.errors.values()), *report.result.errors.values()] for report in reports]
    chances = dict.fromkeys((report.name, report.result.text_only) for report in reports)
    hashes = dict.fromkeys((report.name, report.candidates_sha256) for report in reports)
    sections = [
        report_table(reports),
        "Precision (P), recall (R) and F1 in %, over mentions and as means over documents",
        _table_of(reports, ["micro P", "R", "F1", "macro P", "R", "F1"], rates),
        "Mentions answered wrongly or not at all, by kind",
        _table_of(reports, ["errors", *(kind.replace("_", " ") for kind in ERROR_KINDS)], errors),
        "Accuracy in % by links to the gold entity, where it is a candidate; in brackets the mentions",
        _table_of(reports, list(LINK_CLASSES), [_share_cells(report.result.by_links) for report in reports]),
        "Accuracy in % by prior of the gold entity, where it is a candidate; in brackets the mentions",
        _table_of(reports, list(PRIOR_CLASSES), [_share_cells(report.result.by_prior) for report in reports]),
        "\n".join(f"candidates of {name}: sha256 {digest}" for name, digest in hashes),
        "\n".join(
            f"a pick among the candidates of {name} that have a text is right in {_percent(rate)}%"
            for name, rate in chances
        ),
        *(describe_case(report, case) for report in reports for case in report.cases),
    ]
    return "\n\n".join(sections)


def describe_case(report: Report, case: Case) -> str:
    verdict = "right" if case.is_correct else "wrong"
    return f"{report.name}, {report.model}, document {case.document!r}, gold {case.gold}: {verdict}\n" + describe(
        case.prediction, num_words=20
    )


def describe(prediction: Prediction, *, num_words: int) -> str:
    """A mention with its answer, its attended words, and every candidate's parts."""
    head = f"{prediction.surface!r} [{prediction.start}:{prediction.end}] -> {prediction.best.title if prediction.best else f'nothing: {prediction.reason}'}"
    if not prediction.candidates:
        return head
    words = ", ".join(f"{word} {weight:.2f}" for word, weight in prediction.attended[:num_words])
    rows = [
        (c.title, c.prior, c.local, "" if c.coherence is None else f"{c.coherence:.3f}", c.score, c.probability)
        for c in prediction.candidates
    ]
    columns = table(["candidate", "prior", "local", "coherence", "score", "probability"], rows)
    return "\n".join(
        [head, *([f"  attended words: {words}"] if words else []), *(f"  {line}" for line in columns.splitlines())]
    )


def _table_of(reports: Sequence[Report], headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    named = [[report.name, report.model, *row] for report, row in zip(reports, rows, strict=True)]
    return table(["data set", "model", *headers], named)


def _share_cells(shares: Mapping[str, Share]) -> list[str]:
    return [f"{_percent(share.accuracy)} ({share.mentions:,})" if share.mentions else "-" for share in shares.values()]


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f}"


# -- plans


def plan_text(plan: Plan) -> str:
    """What each stage takes, what holds it up, and what may go wrong."""
    work, cluster, made, serving = plan.workload, plan.cluster, plan.made, plan.serving
    sizes = {
        "articles": work.num_pages,
        "redirects": work.num_redirects,
        "words": round(work.num_words),
        "dump, GB": f"{work.dump_bytes / 1e9:.1f}",
        "entities": work.num_entities,
        "documents to link": work.documents,
    }
    core_s, wall_s = (
        total(*found) for found in zip(*((each.core_s, each.wall_s) for each in plan.stages), strict=True)
    )
    nodes = f"{cluster.nodes} nodes of {cluster.cores_per_node} cores and {cluster.memory_per_node_gb:g} GiB"
    sections = [
        ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in sizes.items()
        ),
        table(_PLAN_COLUMNS, [_plan_row(stage) for stage in plan.stages]),
        f"In all {_hours(core_s)} core-hours, {_duration(wall_s.value)} ({_duration(wall_s.low)} to {_duration(wall_s.high)}) on {nodes}."
        f"\nBottleneck: {plan.bottleneck}.",
        f"Serving {work.documents_per_s:g} documents/s: {serving.replicas} replicas of one core, {serving.documents_per_s.value:.0f} documents/s and"
        f" {_amount(serving.replica_gib)} GiB each; {_amount(serving.mapped_gb)} GB mapped on every node.",
        "\n".join(plan.warnings),
        f"{BAND}\nMeasured on {made['on']}, {made['machine']}: {made['by']}"
        "\nNo stage was measured on a GPU, and none needs one. Memory is what no file backs. Wall-clock is what it takes if storage keeps up.",
    ]
    return "\n\n".join(filter(None, sections))


_PLAN_COLUMNS = [
    *("stage", "core-hours", "GPU-hours", "wall-clock", "driver GiB", "worker GiB"),
    *("disk GB", "unfinished GB", "node cache GB"),
]


def _plan_row(stage: Stage) -> list[str]:
    memory = [_amount(each) if each else "-" for each in (stage.driver_gib, stage.worker_gib)]
    disk = [_amount(each) if each.value else "-" for each in (stage.disk_gb, stage.work_gb, stage.cache_gb)]
    return [stage.name, _hours(stage.core_s), "-", _duration(stage.wall_s.value), *memory, *disk]


def _hours(seconds: Estimate) -> str:
    return _amount(seconds.times(1 / 3600))


def _amount(estimate: Estimate) -> str:
    """The value, and from where to where it may lie."""
    return f"{_digits(estimate.value)} ({_digits(estimate.low)}-{_digits(estimate.high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
