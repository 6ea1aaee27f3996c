"""`deeped rollback`: make an earlier version the current one again; a service follows."""

import argparse

from deeped_ray.commands.options import Answer, add_kb, positive
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.versions import number_of, switch, version, versions
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("--to", type=positive, metavar="N", help="version (default: the one before the current one)")
    parser.add_argument("--serve", metavar="URL", help="Ray's dashboard: services of this knowledge base go back too")


def run(args: argparse.Namespace) -> Answer:
    kb = KnowledgeBase(args.kb)
    current, number = number_of(kb), args.to or _before(kb)
    version(kb, number).check("corpus", "words", "vectors", "index")
    if args.serve:
        from deeped_ray.serving.follow import follow  # FastAPI and its friends, which a look-up does not need

        follow(kb, number, address=args.serve, say=print)
    switch(kb, number)
    return {"version": number, "previous": current}, f"{kb} is at version {number} again; it was at {current}."


def _before(kb: KnowledgeBase) -> int:
    found = [each.number for each in versions(kb) if each.state == "earlier" and each.number < number_of(kb)]
    if not found:
        raise DeepEdError(f"{kb} has no earlier version than {number_of(kb)}. See deeped versions {kb}.")
    return found[0]
