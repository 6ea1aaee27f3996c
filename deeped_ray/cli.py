"""The `deeped` command: link text and look into a knowledge base. Tables for people, --json for programs."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from deeped_ray import __version__
from deeped_ray.artifacts import ArtifactError, KnowledgeBase
from deeped_ray.corpus.entities import Catalogue
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.embeddings.words import Words, ranked_words
from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.detection import evaluate_detection
from deeped_ray.evaluation.relatedness import RelatednessConfig, relatedness
from deeped_ray.evaluation.report import EvaluationConfig, evaluate, write_json
from deeped_ray.evaluation.tables import describe, detection_table, report_text, table
from deeped_ray.linking.detection import DetectionConfig, open_detector
from deeped_ray.linking.linker import Linker, Span
from deeped_ray.options import USER_ERROR, OneLineParser, add_options, config_from
from deeped_ray.types import DeepEdError


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # bytes that are no text are shown as such, not died of
    args = _parser().parse_args(arguments)
    try:
        data, text = args.run(args)
    except DeepEdError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    try:
        print(json.dumps(data, ensure_ascii=False, indent=2) if args.json is True else text)
        sys.stdout.flush()
    except BrokenPipeError:  # `deeped ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="deeped", description="Link text to the entities of a knowledge base, and look into it."
    )
    parser.add_argument("--version", action="version", version=f"deeped-ray {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    link = _command(
        commands,
        "link",
        _link,
        "link spans of a text",
        'deeped link --kb KB --spans 0:8,14:23 "Scotland beat Australia at Murrayfield."',
    )
    link.add_argument("text", help="the text, or - to read it from standard input")
    link.add_argument(
        "--spans", required=True, type=_spans, help="mentions as START:END,START:END,... in characters, END exclusive"
    )
    link.add_argument(
        "--model", choices=("prior", "local", "global"), default="global", help="which linker (default: global)"
    )
    link.add_argument("--words", type=int, default=8, metavar="N", help="attended words to show (default: 8)")

    detect = _command(
        commands,
        "detect",
        _detect,
        "find the mentions of a text, or score how well they are found",
        'deeped detect --kb KB "Scotland beat Australia at Murrayfield."',
    )
    detect.add_argument("text", nargs="?", help="the text, or - to read it from standard input")
    detect.add_argument(
        "--dataset", action="append", default=[], help=f"score on annotated documents instead, repeatable: {SPECS}"
    )
    add_options(detect, DetectionConfig)

    mention = _command(
        commands, "mention", _mention, "show what a name can mean, with p(e|m)", 'deeped mention --kb KB "Apple"'
    )
    mention.add_argument("surface", help="the name as it stands in a text")

    neighbors = _command(
        commands,
        "neighbors",
        _neighbors,
        "show what is close to an entity, to a mix of several, or to a text",
        'deeped neighbors --kb KB "Apple Inc." "Fruit"',
    )
    neighbors.add_argument("title", nargs="*", help="title of an entity, or a redirect to it; several are mixed")
    neighbors.add_argument("--text", help="a text, mixed with the titles if there are any")
    neighbors.add_argument("--words", action="store_true", help="closest words instead of entities")
    neighbors.add_argument("--count", type=_positive, default=10, metavar="N", help="how many (default: 10)")
    neighbors.add_argument(
        "--min-count", type=int, default=0, metavar="N", help="with --words: only words at least this often in the dump"
    )

    scores = _command(
        commands,
        "evaluate",
        _evaluate,
        "score linkers on annotated documents",
        "deeped evaluate --kb KB --dataset aida:FILE --json OUT",
        json_file=True,
    )
    add_options(scores, EvaluationConfig)

    related = _command(
        commands,
        "relatedness",
        _relatedness,
        "compare entity vectors with judgements of relatedness",
        "deeped relatedness --kb KB --dataset kore:KORE.txt --dataset pairs:WikiSim-353.txt",
    )
    add_options(related, RelatednessConfig)

    info = _command(commands, "info", _info, "show what a knowledge base holds", "deeped info KB", kb_option=False)
    info.add_argument("kb", metavar="KB", help="knowledge-base folder")
    info.add_argument("--verify", action="store_true", help="read every file and compare it with its checksum")
    return parser


def _command(
    commands: Any, name: str, run: Any, summary: str, example: str, *, kb_option: bool = True, json_file: bool = False
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=f"example: {example}"
    )
    parser.set_defaults(run=run)
    if kb_option:
        parser.add_argument("--kb", required=True, help="knowledge-base folder")
    if json_file:
        parser.add_argument("--json", metavar="OUT", type=Path, help="write the scores to this file as JSON too")
    else:
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


# -- commands: each returns its data and the same as text


def _link(args: argparse.Namespace) -> tuple[Any, str]:
    text = sys.stdin.read() if args.text == "-" else args.text
    predictions = Linker.open(args.kb, args.model).link(text, args.spans)
    return [asdict(prediction) for prediction in predictions], "\n\n".join(
        describe(prediction, num_words=args.words) for prediction in predictions
    )


def _detect(args: argparse.Namespace) -> tuple[Any, str]:
    if (args.text is None) == (not args.dataset):
        raise DeepEdError("Give either a text or --dataset.")
    detector = open_detector(KnowledgeBase(args.kb).open("corpus"), config_from(args, DetectionConfig))
    if args.dataset:
        reports = [evaluate_detection(detector.spans, spec) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    text = sys.stdin.read() if args.text == "-" else args.text
    rows = [(start, end, text[start:end]) for start, end in detector.spans(text)]
    columns = ["start", "end", "mention"]
    return [dict(zip(columns, row, strict=True)) for row in rows], table(columns, rows)


def _mention(args: argparse.Namespace) -> tuple[Any, str]:
    corpus = KnowledgeBase(args.kb).open("corpus")
    catalogue = Catalogue(corpus)
    match = MentionTable(corpus).match(args.surface)
    candidates = [
        {"title": catalogue.title(candidate.entity_id), "prior": round(candidate.prior, 4), "count": candidate.support}
        for candidate in match.candidates
    ]
    data = {"mention": match.mention, "rule": match.rule, "candidates": candidates}
    if not candidates:
        return data, f"{args.surface!r} is no mention in this knowledge base: it never occurs as a link or title."
    found = f"{match.mention!r} ({match.rule}), {len(candidates)} candidates"
    return data, f"{found}\n\n{table(['entity', 'p(e|m)', 'count'], [tuple(row.values()) for row in candidates])}"


def _neighbors(args: argparse.Namespace) -> tuple[Any, str]:
    kb = KnowledgeBase(args.kb)
    if not args.title and not args.text:
        raise DeepEdError("Give the title of an entity, several, or --text.")
    catalogue = Catalogue(kb.open("corpus"))
    entity_ids = [catalogue.require(title) for title in args.title]
    vector = kb.open("vectors").array("vectors")[entity_ids].sum(axis=0)
    if args.text:
        vector = vector + TextEmbedder(kb).embed("", args.text)
    vector = vector / (np.linalg.norm(vector) or 1)  # a mix has no unit length, and cosines are shown
    if args.words:
        rows = ranked_words(Words(kb.open("words")), vector, count=args.count, min_count=args.min_count)
    else:
        nearest = EntityIndex.open(kb).neighbors(vector, count=args.count, without=entity_ids)
        rows = [(catalogue.title(near.entity_id), near.similarity) for near in nearest]
    kind = "word" if args.words else "entity"
    return [{kind: name, "similarity": similarity} for name, similarity in rows], table([kind, "cosine"], rows)


def _evaluate(args: argparse.Namespace) -> tuple[Any, str]:
    reports = evaluate(KnowledgeBase(args.kb), config_from(args, EvaluationConfig))
    if args.json:
        write_json(reports, args.json)
    return None, report_text(reports)


def _relatedness(args: argparse.Namespace) -> tuple[Any, str]:
    config = config_from(args, RelatednessConfig)
    if not config.dataset:
        raise DeepEdError("Give at least one --dataset: kore:FILE, pairs:FILE or ceccarelli:FILE.")
    scores = relatedness(KnowledgeBase(args.kb), config)
    return scores, "\n\n".join(table(list(row), [tuple(row.values())]) for row in scores)


def _info(args: argparse.Namespace) -> tuple[Any, str]:
    kb = KnowledgeBase(args.kb)
    manifest = kb.manifest()
    if not manifest["parts"]:
        raise DeepEdError(f"{kb.root} holds no parts. Run jobs/build_corpus.py --kb {kb.root} first.")
    problems = kb.verify() if args.verify else {}
    rows, details = [], []
    for name, record in sorted(manifest["parts"].items(), key=lambda item: item[1]["created"]):
        size = sum(file["bytes"] for file in record["files"].values())
        problem = problems.get(name) or _problem(kb, name)
        state = problem or ("verified" if args.verify else "ready")
        rows.append(
            (
                name,
                record["id"],
                len(record["files"]),
                f"{size / 2**20:.1f} MiB",
                record["created"],
                record["made_by"],
                state,
            )
        )
        details.append({"part": name, "bytes": size, "problem": problem, **record})
    summary = _summary(kb)
    lines = [
        f"{kb.root}, format {manifest['format']}",
        "",
        table(["part", "id", "files", "size", "made", "by", "state"], rows),
    ]
    if summary:
        lines += ["", table(["holds", "number"], list(summary.items()))]
    return {"root": str(kb.root), "format": manifest["format"], "holds": summary, "parts": details}, "\n".join(lines)


def _problem(kb: KnowledgeBase, name: str) -> str | None:
    try:
        kb.open(name)
    except ArtifactError as error:
        return str(error)
    return None


def _summary(kb: KnowledgeBase) -> dict[str, Any]:
    """What ingest counted, of the parts that can be read."""
    summary: dict[str, Any] = {}
    for name in ("pages", "corpus"):
        if name in kb and _problem(kb, name) is None:
            summary |= json.loads((kb.open(name).path / "summary.json").read_text())
    return {key: len(value) if isinstance(value, list) else value for key, value in summary.items()}


# -- values of options


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive number")
    return int(value)


def _spans(value: str) -> list[Span]:
    try:
        pairs = [part.split(":") for part in value.split(",")]
        return [(int(start), int(end)) for start, end in pairs]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not START:END,START:END,... as in 0:8,14:23") from None


if __name__ == "__main__":
    sys.exit(main())
