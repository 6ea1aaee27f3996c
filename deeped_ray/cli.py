"""The `deeped` command: build a knowledge base, link text with it, look into it, serve it.

Each command is a module in `commands/`, imported when it is asked for, so that a look-up does not wait for torch or Ray.
It returns its data and the same as text: tables for people, --json for programs.
"""

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from deeped_ray import __version__
from deeped_ray.extras import named
from deeped_ray.running.job import USER_ERROR, OneLineParser
from deeped_ray.types import DeepEdError


class Command(NamedTuple):
    summary: str
    example: str


COMMANDS = {
    "demo": Command("show the whole path on this machine: dump, vectors, linker, server", "deeped demo --once"),
    "serve": Command("serve a knowledge base on this machine: page, HTTP API, metrics", "deeped serve --kb kb/mini"),
    "deploy": Command(
        "deploy a Serve config file to a running cluster; if it fails, go back to what ran before",
        "deeped deploy linker.yaml --address http://127.0.0.1:8265",
    ),
    "link": Command("link the mentions of a text", 'deeped link --kb KB "Scotland beat Australia at Murrayfield."'),
    "mcp": Command(
        "offer tools to a language model on this machine: the Model Context Protocol over standard input and output",
        "deeped mcp --kb kb/mini",
    ),
    "detect": Command(
        "find the mentions of a text, or score how well they are found",
        'deeped detect --kb KB "Scotland beat Australia at Murrayfield."',
    ),
    "mention": Command("show what a name can mean, with p(e|m)", 'deeped mention --kb KB "Apple"'),
    "neighbors": Command(
        "show what is close to an entity, to a mix of several, or to a text",
        'deeped neighbors --kb KB "Apple Inc." "Fruit"',
    ),
    "evaluate": Command(
        "score linkers on annotated documents", "deeped evaluate --kb KB --dataset aida:FILE --json OUT"
    ),
    "relatedness": Command(
        "compare entity vectors with people's judgement of relatedness",
        "deeped relatedness --kb KB --dataset kore:KORE.txt --dataset pairs:WikiSim-353.txt",
    ),
    "entities": Command(
        "add entities to a knowledge base, take some off, or list what was changed",
        "deeped entities --kb KB add products.csv",
    ),
    "feedback": Command(
        "gather the corrections that clients sent, to train with them", "deeped feedback --kb KB corrections.jsonl"
    ),
    "compact": Command("fold changes to single entities into the parts", "deeped compact --kb KB"),
    "plan": Command(
        "estimate what a knowledge base will cost: memory, disk, core-hours, bottleneck",
        "deeped plan --preset enwiki --documents 1000000 --nodes 8",
    ),
    "wikidata": Command(
        "add Wikidata ids to a knowledge base", "deeped wikidata --kb KB --page-props enwiki-latest-page_props.sql.gz"
    ),
    "pack": Command("pack a knowledge base into one file to give away", "deeped pack KB kb.tar --scores scores.json"),
    "versions": Command("show the versions of a knowledge base", "deeped versions KB"),
    "rollback": Command("make an earlier version of a knowledge base current again", "deeped rollback --kb KB"),
    "info": Command("show what a knowledge base holds", "deeped info KB"),
}
WITHOUT_JSON = ("demo", "serve", "deploy", "evaluate", "mcp")


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # show bytes that are no text, do not fail at them
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with named(ray="serve" if given[:1] in (["demo"], ["serve"], ["deploy"]) else "train"):
            if given and given[0] in ("build", "job"):
                return _run_job(given)
            args = _parser(given).parse_args(given)
            data, text = args.run(args)
    except DeepEdError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return 130
    try:
        is_json = getattr(args, "json", None) is True
        shown = json.dumps(data, ensure_ascii=False, indent=2, default=asdict) if is_json else text
        print(shown, end="\n" if shown else "")
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
            module = importlib.import_module(f"deeped_ray.commands.{name}")
            module.add_options(each)
            each.set_defaults(run=module.run)
            if name not in WITHOUT_JSON:
                each.add_argument("--json", action="store_true", help="print JSON instead of a table")
    commands.add_parser("job", help="run one stage as its job does: deeped job build_index --kb KB")
    return parser


def _run_job(given: Sequence[str]) -> int:
    from deeped_ray.stages import ALONE, STAGES
    from deeped_ray.stages import main as run

    about = {stage.name: stage.about for stage in (*STAGES, *ALONE)} | {"pipeline": BUILD}
    if given[0] == "build":
        run("pipeline", BUILD, given[1:], prog="deeped build")
    elif given[1:2] and given[1] in about:
        run(given[1], about[given[1]], given[2:], prog=f"deeped job {given[1]}")
    elif given[1:2] in (["-h"], ["--help"]):
        rows = [f"  {name:<16} {text.splitlines()[0]}" for name, text in about.items()]
        print(
            "\n".join(["usage: deeped job NAME --kb KB [options]", "", *rows, "", "deeped job NAME --help tells more."])
        )
    else:
        raise DeepEdError(f"Give the name of a job: {', '.join(about)}.")
    return 0


BUILD = """Build a knowledge base: corpus, entity vectors, index and linker. What is done already is skipped.

deeped build --kb kb/mini                     # the mini encyclopedia that ships with deeped-ray
deeped build --kb kb/wiki --dump wiki.xml.bz2 --train aida:train.tsv --dev aida:testa.tsv
deeped build --kb kb/own --entities products.csv    # entities of your own, alone or with --dump
deeped build --kb kb/wiki --config wiki.yaml --set linker.rounds=10
"""


if __name__ == "__main__":
    sys.exit(main())
