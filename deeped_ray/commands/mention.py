"""`deeped mention`: what a name can mean, alone or in a text."""

import argparse
from dataclasses import asdict

from deeped_ray.commands.options import Answer, add_kb, entity_table
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.following import LiveLookup
from deeped_ray.running.console import stdout_style
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("surface", help="the name as it stands in a text")
    parser.add_argument(
        "--text", help="a text with the name: shows its candidates there, and where each of them came from"
    )


def run(args: argparse.Namespace) -> Answer:
    kb = KnowledgeBase(args.kb)
    return _in_text(kb, args.surface, args.text) if args.text else _alone(kb, args.surface)


def _alone(kb: KnowledgeBase, surface: str) -> Answer:
    lookup = LiveLookup.open(kb)
    name = lookup.mention(surface)
    if name.candidates:
        rows = [(sense.title, sense.prior, sense.count) for sense in name.candidates]
        found = f"{name.mention!r} ({name.rule}), {len(rows)} candidate{'s' if len(rows) > 1 else ''}"
        return asdict(name), f"{found}\n\n{entity_table(['entity', 'p(e|m)', 'count'], rows, name.candidates)}"
    unknown = f"{surface!r} is no mention in this knowledge base: it is never a link or a title."
    alike = lookup.resembling(surface, count=10) if "index" in kb else []
    if not alike:
        return asdict(name), unknown
    rows_alike = [(each.title, each.match, each.resemblance) for each in alike]
    data = {**asdict(name), "resembling": [asdict(each) for each in alike]}
    columns = entity_table(["entity", "match", "resemblance"], rows_alike, alike)
    return data, f"{unknown} These names resemble it:\n\n{columns}"


def _in_text(kb: KnowledgeBase, surface: str, text: str) -> Answer:
    """The name at its first place, among the mentions that are found around it."""
    from deeped_ray.linking.opened import open as open_kb
    from deeped_ray.linking.views import answer_of, describe

    start = text.find(surface)
    if start < 0 or not surface:
        raise DeepEdError(f"{surface!r} does not stand in the text.")
    end = start + len(surface)
    linker = open_kb(kb.origin).linker()
    others = [span for span in linker.detector.spans(text) if span[1] <= start or span[0] >= end]
    (found,) = (each for each in linker.link(text, [*others, (start, end)]) if each.start == start)
    return answer_of(found), describe(found, num_words=4, style=stdout_style())
