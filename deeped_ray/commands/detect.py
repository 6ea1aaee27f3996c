"""`deeped detect`: the mentions of a text, or how well they are found."""

import argparse
import sys
from dataclasses import asdict

from deeped_ray.commands.options import MODELS, Answer, add_detection_options, add_kb, config_of
from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.detection import evaluate_detection, evaluate_end_to_end
from deeped_ray.evaluation.tables import detection_table
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig, open_detector
from deeped_ray.linking.linker import Linker
from deeped_ray.running.console import stdout_style, table
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("text", nargs="?", help="the text, or - to read it from standard input")
    parser.add_argument(
        "--dataset", action="append", default=[], help=f"score on annotated documents instead, repeatable: {SPECS}"
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="with --dataset: also link what is found, and score mentions with the right entity",
    )
    add_detection_options(parser)


def run(args: argparse.Namespace) -> Answer:
    if (args.text is None) == (not args.dataset):
        raise DeepEdError("Give either a text or --dataset.")
    if args.model and not args.dataset:
        raise DeepEdError("--model needs --dataset. `deeped link` links the mentions of a text.")
    (config,) = config_of(args, DetectionConfig)
    kb = KnowledgeBase(args.kb)
    if args.dataset and args.model:
        linker = Linker.open(kb, args.model, detection=config)
        reports = [evaluate_end_to_end(linker, spec, kb=kb) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    detector = open_detector(kb, config)
    if args.dataset:
        reports = [evaluate_detection(detector.spans, spec, kb=kb) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    text = sys.stdin.read() if args.text == "-" else args.text
    rows = [(start, end, text[start:end]) for start, end in detector.spans(text)]
    columns = ["start", "end", "mention"]
    return [dict(zip(columns, row, strict=True)) for row in rows], table(columns, rows, style=stdout_style())
