"""`deeped mention`: what a name can mean."""

import argparse
from dataclasses import asdict

from deeped_ray.commands.options import Answer, add_kb
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.lookup import Lookup
from deeped_ray.running.console import stdout_style, table


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("surface", help="the name as it stands in a text")


def run(args: argparse.Namespace) -> Answer:
    kb = KnowledgeBase(args.kb)
    name = Lookup(kb).mention(args.surface)
    if name.candidates:
        rows = [(sense.title, sense.prior, sense.count) for sense in name.candidates]
        found = f"{name.mention!r} ({name.rule}), {len(rows)} candidates"
        return asdict(name), f"{found}\n\n{table(['entity', 'p(e|m)', 'count'], rows, style=stdout_style())}"
    unknown = f"{args.surface!r} is no mention in this knowledge base: it is never a link or a title."
    alike = Lookup(kb).resembling(args.surface, count=10) if "index" in kb else []
    if not alike:
        return asdict(name), unknown
    rows_alike = [(each.title, each.resemblance) for each in alike]
    data = {**asdict(name), "resembling": [asdict(each) for each in alike]}
    return data, f"{unknown} These names resemble it:\n\n{table(['entity', 'resemblance'], rows_alike)}"
