"""A plan as text for people."""

from deeped_ray.planning.coefficients import BAND, Estimate, total
from deeped_ray.planning.plan import Plan, Stage
from deeped_ray.running.console import PLAIN, Style, table


def plan_text(plan: Plan, *, style: Style = PLAIN) -> str:
    """What each stage costs, what limits it, and what may go wrong."""
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
    nodes = f"{cluster.nodes} nodes of {cluster.cores_per_node} cores and {cluster.memory_per_node_gib:g} GiB"
    sections = [
        ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in sizes.items()
        ),
        table(_PLAN_COLUMNS, [_plan_row(stage) for stage in plan.stages], style=style),
        f"In all {_hours(core_s)} core-hours, {_duration(wall_s.value)} ({_duration(wall_s.low)} to {_duration(wall_s.high)}) on {nodes}."
        f"\nBottleneck: {plan.bottleneck}.",
        f"Serving {work.documents_per_s:g} documents/s: {serving.replicas} replicas of one core, {serving.documents_per_s.value:.0f} documents/s and"
        f" {_amount(serving.replica_gib)} GiB each; {_amount(serving.mapped_gb)} GB mapped on every node.",
        "\n".join(plan.warnings),
        f"{BAND}\nMeasured on {made['on']}, {made['machine']}: {made['by']}"
        f"\nThe lines of ingest have met larger wikis: {made['reach']}"
        "\nNo stage was measured on a GPU, and none needs one. Memory does not include mapped files. Wall-clock assumes that storage keeps up.",
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
    """The value with its range."""
    return f"{_digits(estimate.value)} ({_digits(estimate.low)}-{_digits(estimate.high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
