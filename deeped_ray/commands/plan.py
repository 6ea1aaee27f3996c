"""`deeped plan`: what a knowledge base will cost."""

import argparse

from deeped_ray.commands.options import Answer, config_of
from deeped_ray.planning.plan import make_plan
from deeped_ray.planning.simulation import COLUMNS, Fleet, compare, simulation_text
from deeped_ray.planning.tables import plan_text
from deeped_ray.planning.workload import Cluster, Workload
from deeped_ray.running.config import add_flags, add_set


def add_options(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, Workload)
    add_flags(parser, Cluster)
    parser.add_argument(
        "--simulate", action="store_true", help="also run the plan on simulated clusters of 8, 64 and 512 nodes"
    )
    add_set(parser, "--set words_per_page=400")


def run(args: argparse.Namespace) -> Answer:
    work, cluster, fleet = config_of(args, Workload, Cluster, Fleet)
    plan = make_plan(work, cluster)
    if not args.simulate:
        return plan.to_json(), plan_text(plan)
    rows = compare(plan, fleet)
    simulated = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return {**plan.to_json(), "simulation": simulated}, f"{plan_text(plan)}\n\n{simulation_text(rows)}"
