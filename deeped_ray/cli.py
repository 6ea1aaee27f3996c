"""The `deeped` command: build a knowledge base, link text with it, look into it, serve it.

Each command imports what it needs when it runs, so that a look-up does not wait for torch or Ray. Commands return their
data and the same as text: tables for people, --json for programs.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from deeped_ray import __version__
from deeped_ray.running.console import table
from deeped_ray.running.job import USER_ERROR, OneLineParser
from deeped_ray.types import DeepEdError

MODELS = ("prior", "local", "global")
Answer = tuple[Any, str]


class Command(NamedTuple):
    summary: str
    example: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Answer]


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # show bytes that are no text, do not fail at them
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in ("build", "job"):
            return _run_job(given)
        args = _parser(given).parse_args(given)
        data, text = args.command.run(args)
    except DeepEdError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    try:
        print(json.dumps(data, ensure_ascii=False, indent=2) if args.json is True else text)
        sys.stdout.flush()
    except BrokenPipeError:  # `deeped ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """All commands for --help; options only of the one that is asked for."""
    parser = OneLineParser(
        prog="deeped",
        description="Link text to the entities of a knowledge base.",
        epilog="deeped COMMAND --help tells more.",
    )
    parser.add_argument("--version", action="version", version=f"deeped-ray {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("build", help="build a knowledge base from a dump, or what is missing of it")
    for name, command in COMMANDS.items():
        text = f"{command.summary[0].upper()}{command.summary[1:]}."
        each = commands.add_parser(name, help=command.summary, description=text, epilog=f"example: {command.example}")
        if name in given[:1]:
            command.options(each)
            each.set_defaults(command=command)
            if not any(action.dest == "json" for action in each._actions):
                each.add_argument("--json", action="store_true", help="print JSON instead of a table")
    commands.add_parser("job", help="run one stage as its job does: deeped job build_index --kb KB")
    return parser


def _run_job(given: Sequence[str]) -> int:
    from deeped_ray.stages import LINK_CORPUS, NAMES
    from deeped_ray.stages import main as run

    names = [*NAMES, LINK_CORPUS.name, "pipeline"]
    if given[0] == "build":
        run("pipeline", BUILD, given[1:], prog="deeped build")
    elif given[1:2] and given[1] in names:
        run(given[1], f"The job {given[1]}: see docs/quickstart.md.", given[2:], prog=f"deeped job {given[1]}")
    else:
        raise DeepEdError(f"Give the name of a job: {', '.join(names)}.")
    return 0


BUILD = """Build a knowledge base: corpus, entity vectors, index and linker. What is done already is skipped.

deeped build --kb kb/mini                     # the mini encyclopedia that ships with deeped-ray
deeped build --kb kb/wiki --dump wiki.xml.bz2 --train aida:train.tsv --dev aida:testa.tsv
deeped build --kb kb/wiki --config wiki.yaml --set linker.rounds=10
"""


# -- link and detect


def _link_options(parser: argparse.ArgumentParser) -> None:
    _add_kb(parser)
    parser.add_argument("text", help="the text, or - to read it from standard input")
    parser.add_argument(
        "--spans", type=_spans, help="mentions as START:END,... in characters, END exclusive (default: find them)"
    )
    parser.add_argument("--model", choices=MODELS, default="global", help="which linker (default: global)")
    parser.add_argument(
        "--threshold", type=_share, default=0.0, metavar="P", help="answer nothing below this probability (default: 0)"
    )
    parser.add_argument("--words", type=int, default=8, metavar="N", help="attended words to show (default: 8)")
    _detection_options(parser)


def _detection_options(parser: argparse.ArgumentParser) -> None:
    from deeped_ray.running.config import add_set

    add_set(parser, "--set min_link_probability=0.02 (how mentions are found)")


def _config(args: argparse.Namespace, *configs: type[Any]) -> list[Any]:
    """What flags and --set say of these dataclasses."""
    from deeped_ray.running.config import check_keys, flags_given, make, parse_sets, settings_of

    known = [name for config in configs for name in settings_of(config)]
    given = parse_sets(args.set)
    check_keys(given, {}, top=known)
    return [make(config, {**flags_given(args, config), **given}) for config in configs]


def _link(args: argparse.Namespace) -> Answer:
    from deeped_ray.linking.detection import DetectionConfig
    from deeped_ray.linking.linker import Linker
    from deeped_ray.linking.views import describe

    text = sys.stdin.read() if args.text == "-" else args.text
    linker = Linker.open(args.kb, args.model, detection=_config(args, DetectionConfig)[0])
    predictions = [prediction.at_least(args.threshold) for prediction in linker.link(text, args.spans)]
    if not predictions:
        return [], "No mentions found. Give them with --spans, or lower a threshold: --set min_link_probability=0.005."
    told = "\n\n".join(describe(prediction, num_words=args.words) for prediction in predictions)
    return [asdict(prediction) for prediction in predictions], told


def _detect_options(parser: argparse.ArgumentParser) -> None:
    from deeped_ray.evaluation.datasets import SPECS

    _add_kb(parser)
    parser.add_argument("text", nargs="?", help="the text, or - to read it from standard input")
    parser.add_argument(
        "--dataset", action="append", default=[], help=f"score on annotated documents instead, repeatable: {SPECS}"
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="with --dataset: also link what is found, and score mentions with the right entity",
    )
    _detection_options(parser)


def _detect(args: argparse.Namespace) -> Answer:
    from deeped_ray.evaluation.detection import evaluate_detection, evaluate_end_to_end
    from deeped_ray.evaluation.tables import detection_table
    from deeped_ray.knowledge.base import KnowledgeBase
    from deeped_ray.linking.detection import DetectionConfig, open_detector
    from deeped_ray.linking.linker import Linker

    if (args.text is None) == (not args.dataset):
        raise DeepEdError("Give either a text or --dataset.")
    if args.model and not args.dataset:
        raise DeepEdError("--model needs --dataset. `deeped link` links the mentions of a text.")
    (config,) = _config(args, DetectionConfig)
    if args.dataset and args.model:
        linker = Linker.open(args.kb, args.model, detection=config)
        reports = [evaluate_end_to_end(linker, spec) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    detector = open_detector(KnowledgeBase(args.kb).open("corpus"), config)
    if args.dataset:
        reports = [evaluate_detection(detector.spans, spec) for spec in args.dataset]
        return [asdict(report) for report in reports], detection_table(reports)
    text = sys.stdin.read() if args.text == "-" else args.text
    rows = [(start, end, text[start:end]) for start, end in detector.spans(text)]
    columns = ["start", "end", "mention"]
    return [dict(zip(columns, row, strict=True)) for row in rows], table(columns, rows)


# -- look-ups


def _mention_options(parser: argparse.ArgumentParser) -> None:
    _add_kb(parser)
    parser.add_argument("surface", help="the name as it stands in a text")


def _mention(args: argparse.Namespace) -> Answer:
    from deeped_ray.knowledge.base import KnowledgeBase
    from deeped_ray.linking.lookup import Lookup

    kb = KnowledgeBase(args.kb)
    name = Lookup(kb).name(args.surface)
    if name.candidates:
        rows = [(sense.title, sense.prior, sense.count) for sense in name.candidates]
        found = f"{name.mention!r} ({name.rule}), {len(rows)} candidates"
        return asdict(name), f"{found}\n\n{table(['entity', 'p(e|m)', 'count'], rows)}"
    unknown = f"{args.surface!r} is no mention in this knowledge base: it is never a link or a title."
    alike = Lookup(kb).resembling(args.surface, count=10) if "index" in kb else []
    if not alike:
        return asdict(name), unknown
    rows_alike = [(each.title, each.resemblance) for each in alike]
    data = {**asdict(name), "resembling": [asdict(each) for each in alike]}
    return data, f"{unknown} These names resemble it:\n\n{table(['entity', 'resemblance'], rows_alike)}"


def _neighbors_options(parser: argparse.ArgumentParser) -> None:
    _add_kb(parser)
    parser.add_argument("title", nargs="*", help="title of an entity, or a redirect to it; several are mixed")
    parser.add_argument("--text", help="a text, mixed with the titles if there are any")
    parser.add_argument("--words", action="store_true", help="closest words instead of entities")
    parser.add_argument("--count", type=_positive, default=10, metavar="N", help="how many (default: 10)")
    parser.add_argument(
        "--min-count", type=int, default=0, metavar="N", help="with --words: only words at least this often in the dump"
    )


def _neighbors(args: argparse.Namespace) -> Answer:
    from deeped_ray.embeddings.words import Words, ranked_words
    from deeped_ray.knowledge.base import KnowledgeBase
    from deeped_ray.linking.lookup import Lookup

    if not args.title and not args.text:
        raise DeepEdError("Give the title of an entity, several titles, or --text.")
    kb = KnowledgeBase(args.kb)
    lookup = Lookup(kb)
    if args.words:
        vector = lookup.mix(args.title, args.text or "")
        rows = ranked_words(Words(kb.open("words")), vector, count=args.count, min_count=args.min_count)
        return [{"word": word, "similarity": similarity} for word, similarity in rows], table(["word", "cosine"], rows)
    nearest = lookup.related(args.title, args.text or "", count=args.count)
    rows = [(near.title, near.similarity) for near in nearest]
    return [asdict(near) for near in nearest], table(["entity", "cosine"], rows)


# -- scores


def _evaluate_options(parser: argparse.ArgumentParser) -> None:
    from deeped_ray.evaluation.report import EvaluationConfig
    from deeped_ray.running.config import add_flags, add_set

    _add_kb(parser)
    parser.add_argument("--json", metavar="OUT", type=Path, help="write the scores to this file as JSON too")
    add_flags(parser, EvaluationConfig)
    add_set(parser, "--set resembling=false")


def _evaluate(args: argparse.Namespace) -> Answer:
    from deeped_ray.evaluation.report import EvaluationConfig, evaluate, write_json
    from deeped_ray.evaluation.tables import report_text
    from deeped_ray.knowledge.base import KnowledgeBase

    reports = evaluate(KnowledgeBase(args.kb), *_config(args, EvaluationConfig))
    if args.json:
        write_json(reports, args.json)
    return None, report_text(reports)


def _relatedness_options(parser: argparse.ArgumentParser) -> None:
    from deeped_ray.evaluation.relatedness import RelatednessConfig
    from deeped_ray.running.config import add_flags, add_set

    _add_kb(parser)
    add_flags(parser, RelatednessConfig)
    add_set(parser, "--set discount=deep-ed")


def _relatedness(args: argparse.Namespace) -> Answer:
    from deeped_ray.evaluation.relatedness import RelatednessConfig, relatedness
    from deeped_ray.knowledge.base import KnowledgeBase

    (config,) = _config(args, RelatednessConfig)
    if not config.dataset:
        raise DeepEdError("Give at least one --dataset: kore:FILE, pairs:FILE or ceccarelli:FILE.")
    scores = relatedness(KnowledgeBase(args.kb), config)
    return scores, "\n\n".join(table(list(row), [tuple(row.values())]) for row in scores)


# -- plan and info


def _plan_options(parser: argparse.ArgumentParser) -> None:
    from deeped_ray.planning.workload import Cluster, Workload
    from deeped_ray.running.config import add_flags, add_set

    add_flags(parser, Workload)
    add_flags(parser, Cluster)
    add_set(parser, "--set words_per_page=400")


def _plan(args: argparse.Namespace) -> Answer:
    from deeped_ray.planning.plan import make_plan
    from deeped_ray.planning.tables import plan_text
    from deeped_ray.planning.workload import Cluster, Workload

    plan = make_plan(*_config(args, Workload, Cluster))
    return plan.to_json(), plan_text(plan)


def _info_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kb", metavar="KB", help="knowledge-base folder")
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its checksum")


def _info(args: argparse.Namespace) -> Answer:
    from deeped_ray.knowledge.base import KnowledgeBase

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
        mib = f"{size / 2**20:.1f} MiB"
        rows.append((name, record["id"], len(record["files"]), mib, record["created"], record["made_by"], state))
        details.append({"part": name, "bytes": size, "problem": problem, **record})
    summary = _summary(kb)
    columns = ["part", "id", "files", "size", "made", "by", "state"]
    lines = [f"{kb}, format {manifest['format']}", "", table(columns, rows)]
    if summary:
        lines += ["", table(["holds", "number"], list(summary.items()))]
    return {"root": str(kb), "format": manifest["format"], "holds": summary, "parts": details}, "\n".join(lines)


def _problem(kb: Any, name: str) -> str | None:
    from deeped_ray.knowledge.parts import ArtifactError

    try:
        kb.open(name)
    except ArtifactError as error:
        return str(error)
    return None


def _summary(kb: Any) -> dict[str, Any]:
    """What ingest counted, of the parts that can be read."""
    summary: dict[str, Any] = {}
    for name in ("pages", "corpus"):
        if name in kb and _problem(kb, name) is None:
            summary |= kb.open(name).summary()
    return {key: len(value) if isinstance(value, list) else value for key, value in summary.items()}


COMMANDS = {
    "link": Command(
        "link the mentions of a text",
        'deeped link --kb KB "Scotland beat Australia at Murrayfield."',
        _link_options,
        _link,
    ),
    "detect": Command(
        "find the mentions of a text, or score how well they are found",
        'deeped detect --kb KB "Scotland beat Australia at Murrayfield."',
        _detect_options,
        _detect,
    ),
    "mention": Command(
        "show what a name can mean, with p(e|m)", 'deeped mention --kb KB "Apple"', _mention_options, _mention
    ),
    "neighbors": Command(
        "show what is close to an entity, to a mix of several, or to a text",
        'deeped neighbors --kb KB "Apple Inc." "Fruit"',
        _neighbors_options,
        _neighbors,
    ),
    "evaluate": Command(
        "score linkers on annotated documents",
        "deeped evaluate --kb KB --dataset aida:FILE --json OUT",
        _evaluate_options,
        _evaluate,
    ),
    "relatedness": Command(
        "compare entity vectors with people's judgement of relatedness",
        "deeped relatedness --kb KB --dataset kore:KORE.txt --dataset pairs:WikiSim-353.txt",
        _relatedness_options,
        _relatedness,
    ),
    "plan": Command(
        "estimate what a knowledge base will cost: memory, disk, core-hours, bottleneck",
        "deeped plan --preset enwiki --documents 1000000 --nodes 8",
        _plan_options,
        _plan,
    ),
    "info": Command("show what a knowledge base holds", "deeped info KB", _info_options, _info),
}


# -- values of options


def _add_kb(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kb", required=True, help="knowledge-base folder")


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a positive number")
    return int(value)


def _share(value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(value) <= 1:
            return float(value)
    raise argparse.ArgumentTypeError(f"{value!r} does not lie between 0 and 1")


def _spans(value: str) -> list[tuple[int, int]]:
    try:
        pairs = [part.split(":") for part in value.split(",")]
        return [(int(start), int(end)) for start, end in pairs]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not START:END,START:END,... as in 0:8,14:23") from None


if __name__ == "__main__":
    sys.exit(main())
