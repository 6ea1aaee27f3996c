"""`deeped evaluate`: scores of linkers on annotated documents."""

import argparse
from pathlib import Path

from deeped_ray.commands.options import Answer, add_kb, config_of
from deeped_ray.evaluation.report import EvaluationConfig, evaluate, write_json
from deeped_ray.evaluation.tables import report_text
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import add_flags, add_set


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("--json", metavar="OUT", type=Path, help="write the scores to this file as JSON too")
    add_flags(parser, EvaluationConfig)
    add_set(parser, "--set model=global")


def run(args: argparse.Namespace) -> Answer:
    reports = evaluate(KnowledgeBase(args.kb), *config_of(args, EvaluationConfig))
    if args.json:
        write_json(reports, args.json)
    return None, report_text(reports)
