"""`deeped plan`: what a knowledge base will cost."""

import argparse

from deeped_ray.commands.options import Answer, config_of
from deeped_ray.planning.plan import make_plan
from deeped_ray.planning.tables import plan_text
from deeped_ray.planning.workload import Cluster, Workload
from deeped_ray.running.config import add_flags, add_set


def add_options(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, Workload)
    add_flags(parser, Cluster)
    add_set(parser, "--set words_per_page=400")


def run(args: argparse.Namespace) -> Answer:
    plan = make_plan(*config_of(args, Workload, Cluster))
    return plan.to_json(), plan_text(plan)
