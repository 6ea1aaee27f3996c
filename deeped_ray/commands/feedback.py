"""`deeped feedback`: the corrections that people made on the page or by POST /feedback, as one data set."""

import argparse
import json
from pathlib import Path

from deeped_ray.commands.options import Answer, add_kb
from deeped_ray.evaluation.jsonl import FEEDBACK, gathered
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("file", type=Path, help="file to write; train with it as --train jsonl:FILE")


def run(args: argparse.Namespace) -> Answer:
    rows = gathered(KnowledgeBase(args.kb).home / FEEDBACK)
    if not rows:
        raise DeepEdError(f"Nobody has corrected answers of {args.kb}.")
    try:
        args.file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise DeepEdError(f"Cannot write {args.file}: {error.strerror}.") from error
    number = sum(len(row["mentions"]) for row in rows)
    done = {"texts": len(rows), "mentions": number, "file": str(args.file)}
    return (
        done,
        f"Corrections: {number:,}, in texts: {len(rows):,}. Look them through, then train with jsonl:{args.file}.",
    )
