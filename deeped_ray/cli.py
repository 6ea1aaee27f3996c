"""The `deeped` command: link text and look into a knowledge base. Tables for people, --json for programs."""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deeped_ray import __version__
from deeped_ray.embeddings.words import Words, ranked_words
from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.detection import evaluate_detection, evaluate_end_to_end
from deeped_ray.evaluation.relatedness import RelatednessConfig, relatedness
from deeped_ray.evaluation.report import EvaluationConfig, evaluate, write_json
from deeped_ray.evaluation.tables import describe, detection_table, report_text
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking.detection import DetectionConfig, Span, open_detector
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup
from deeped_ray.planning.plan import make_plan
from deeped_ray.planning.tables import plan_text
from deeped_ray.planning.workload import Cluster, Workload
from deeped_ray.running.config import USER_ERROR, OneLineParser, add_options, config_from
from deeped_ray.running.console import table
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
        "link the mentions of a text, found in it or given as spans",
        'deeped link --kb KB "Scotland beat Australia at Murrayfield."',
    )
    link.add_argument("text", help="the text, or - to read it from standard input")
    link.add_argument(
        "--spans",
        type=_spans,
        help="mentions as START:END,START:END,... in characters, END exclusive (default: those found in the text)",
    )
    link.add_argument(
        "--model", choices=("prior", "local", "global"), default="global", help="which linker (default: global)"
    )
    link.add_argument(
        "--threshold", type=_share, default=0.0, metavar="P", help="answer nothing below this probability (default: 0)"
    )
    link.add_argument("--words", type=int, default=8, metavar="N", help="attended words to show (default: 8)")
    add_options(link, DetectionConfig)

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
    detect.add_argument(
        "--model",
        choices=("prior", "local", "global"),
        help="with --dataset: link what is found as well, and score mentions that have the right entity too",
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

    plan = _command(
        commands,
        "plan",
        _plan,
        "say what a knowledge base will cost: memory, disk, core-hours, and what holds it up",
        "deeped plan --preset enwiki --documents 1000000 --nodes 8",
        kb_option=False,
    )
    add_options(plan, Workload)
    add_options(plan, Cluster)

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
    linker = Linker.open(args.kb, args.model, detection=config_from(args, DetectionConfig))
    predictions = [prediction.at_least(args.threshold) for prediction in linker.link(text, args.spans)]
    if not predictions:
        return [], "No mentions found. `deeped detect --help` lists the thresholds; --spans gives mentions by hand."
    return [asdict(prediction) for prediction in predictions], "\n\n".join(
        describe(prediction, num_words=args.words) for prediction in predictions
    )


def _detect(args: argparse.Namespace) -> tuple[Any, str]:
    if (args.text is None) == (not args.dataset):
        raise DeepEdError("Give either a text or --dataset.")
    config = config_from(args, DetectionConfig)
    if args.dataset and args.model:
        linker = Linker.open(args.kb, args.model, detection=config)
        reports = [evaluate_end_to_end(linker, spec) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    if args.model:
        raise DeepEdError("--model goes with --dataset. `deeped link` links what is found in a text.")
    detector = open_detector(KnowledgeBase(args.kb).open("corpus"), config)
    if args.dataset:
        reports = [evaluate_detection(detector.spans, spec) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    text = sys.stdin.read() if args.text == "-" else args.text
    rows = [(start, end, text[start:end]) for start, end in detector.spans(text)]
    columns = ["start", "end", "mention"]
    return [dict(zip(columns, row, strict=True)) for row in rows], table(columns, rows)


def _mention(args: argparse.Namespace) -> tuple[Any, str]:
    kb = KnowledgeBase(args.kb)
    name = Lookup(kb).name(args.surface)
    if name.candidates:
        rows = [(sense.title, sense.prior, sense.count) for sense in name.candidates]
        found = f"{name.mention!r} ({name.rule}), {len(rows)} candidates"
        return asdict(name), f"{found}\n\n{table(['entity', 'p(e|m)', 'count'], rows)}"
    unknown = f"{args.surface!r} is no mention in this knowledge base: it never occurs as a link or title."
    alike = Lookup(kb).resembling(args.surface, count=10) if "index" in kb else []
    if not alike:
        return asdict(name), unknown
    rows_alike = [(each.title, each.resemblance) for each in alike]
    data = {**asdict(name), "resembling": [asdict(each) for each in alike]}
    return data, f"{unknown} These resemble it:\n\n{table(['entity', 'resemblance'], rows_alike)}"


def _neighbors(args: argparse.Namespace) -> tuple[Any, str]:
    kb = KnowledgeBase(args.kb)
    if not args.title and not args.text:
        raise DeepEdError("Give the title of an entity, several, or --text.")
    lookup = Lookup(kb)
    if args.words:
        vector = lookup.mix(args.title, args.text or "")
        rows = ranked_words(Words(kb.open("words")), vector, count=args.count, min_count=args.min_count)
        return [{"word": word, "similarity": similarity} for word, similarity in rows], table(["word", "cosine"], rows)
    nearest = lookup.related(args.title, args.text or "", count=args.count)
    return [asdict(near) for near in nearest], table(
        ["entity", "cosine"], [(near.title, near.similarity) for near in nearest]
    )


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


def _plan(args: argparse.Namespace) -> tuple[Any, str]:
    plan = make_plan(config_from(args, Workload), config_from(args, Cluster))
    return plan.to_json(), plan_text(plan)


def _info(args: argparse.Namespace) -> tuple[Any, str]:
    kb = KnowledgeBase(args.kb)
    manifest = kb.manifest()
    if not manifest["parts"]:
        raise DeepEdError(f"{kb} holds no parts. Run jobs/build_corpus.py --kb {kb} first.")
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
        f"{kb}, format {manifest['format']}",
        "",
        table(["part", "id", "files", "size", "made", "by", "state"], rows),
    ]
    if summary:
        lines += ["", table(["holds", "number"], list(summary.items()))]
    return {"root": str(kb), "format": manifest["format"], "holds": summary, "parts": details}, "\n".join(lines)


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
            summary |= kb.open(name).summary()
    return {key: len(value) if isinstance(value, list) else value for key, value in summary.items()}


# -- values of options


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive number")
    return int(value)


def _share(value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(value) <= 1:
            return float(value)
    raise argparse.ArgumentTypeError(f"{value!r} does not lie between 0 and 1")


def _spans(value: str) -> list[Span]:
    try:
        pairs = [part.split(":") for part in value.split(",")]
        return [(int(start), int(end)) for start, end in pairs]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not START:END,START:END,... as in 0:8,14:23") from None


if __name__ == "__main__":
    sys.exit(main())
