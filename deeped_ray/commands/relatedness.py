"""`deeped relatedness`: entity vectors against people's judgement."""

import argparse

from deeped_ray.commands.options import Answer, add_kb, config_of
from deeped_ray.evaluation.relatedness import RelatednessConfig, relatedness
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import add_flags, add_set
from deeped_ray.running.console import table
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    add_flags(parser, RelatednessConfig)
    add_set(parser, "--set discount=deep-ed")


def run(args: argparse.Namespace) -> Answer:
    (config,) = config_of(args, RelatednessConfig)
    if not config.dataset:
        raise DeepEdError("Give at least one --dataset: kore:FILE, pairs:FILE or ceccarelli:FILE.")
    scores = relatedness(KnowledgeBase(args.kb), config)
    return scores, "\n\n".join(table(list(row), [tuple(row.values())]) for row in scores)
