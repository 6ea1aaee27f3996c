"""`deeped link`: the mentions of a text with their entities."""

import argparse
import sys

from deeped_ray.commands.options import MODELS, Answer, add_detection_options, add_kb, config_of, share, spans
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.opened import open as open_kb
from deeped_ray.linking.views import answer_of, describe, linked_text
from deeped_ray.running.console import stdout_style


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("text", help="the text, or - to read it from standard input")
    parser.add_argument(
        "--spans", type=spans, help="mentions as START:END,... in characters, END exclusive (default: find them)"
    )
    parser.add_argument("--model", choices=MODELS, default="global", help="which linker (default: global)")
    parser.add_argument(
        "--threshold", type=share, default=0.0, metavar="P", help="answer nothing below this probability (default: 0)"
    )
    parser.add_argument("--words", type=int, default=4, metavar="N", help="attended words to show (default: 4)")
    parser.add_argument(
        "--candidates", action="store_true", help="show all candidates of every mention, with their scores"
    )
    add_detection_options(parser)


def run(args: argparse.Namespace) -> Answer:
    text = sys.stdin.read() if args.text == "-" else args.text
    linker = open_kb(args.kb, detection=config_of(args, DetectionConfig)[0]).linker(args.model)
    predictions = [prediction.at_least(args.threshold) for prediction in linker.link(text, args.spans)]
    if not predictions:
        return (
            [],
            "No mentions found. Give them with --spans, look for more with --mentions all, or lower the threshold: --set mention_threshold=0.1.",
        )
    style = stdout_style()
    told = [linked_text(text, predictions, num_words=args.words, style=style)]
    if args.candidates:
        told += [describe(prediction, num_words=args.words, style=style) for prediction in predictions]
    return [answer_of(prediction) for prediction in predictions], "\n\n".join(told)
