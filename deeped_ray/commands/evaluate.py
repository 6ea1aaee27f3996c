"""`deeped evaluate`: scores of linkers on annotated documents."""

import argparse
from pathlib import Path

from deeped_ray.commands.options import Answer, add_kb, config_of
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import EvaluationConfig, evaluate, write_json
from deeped_ray.evaluation.tables import report_text
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.running.config import add_flags, add_set
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("--json", metavar="OUT", type=Path, help="write the scores to this file as JSON too")
    parser.add_argument(
        "--elevant", metavar="FILE", type=Path, help="write the documents and the answers of one linker for ELEVANT"
    )
    add_flags(parser, EvaluationConfig)
    add_set(parser, "--set model=global")


def run(args: argparse.Namespace) -> Answer:
    kb, (config,) = KnowledgeBase(args.kb), config_of(args, EvaluationConfig)
    if args.elevant:
        _check_one(config)
    reports = evaluate(kb, config)
    if args.json:
        write_json(reports, args.json)
    if args.elevant:
        from deeped_ray.evaluation.elevant import write_elevant

        linker = Linker.open(kb, config.models[0], lists=config.candidates)
        write_elevant(args.elevant, linker, read_dataset(config.datasets[0], kb=kb))
    return None, report_text(reports)


def _check_one(config: EvaluationConfig) -> None:
    if len(config.datasets) > 1 or len(config.models) > 1:
        raise DeepEdError("--elevant writes one file: give one --dataset, and one --model such as global.")
