"""`deeped neighbors`: what is close to an entity, to a mix of several, or to a text."""

import argparse
from dataclasses import asdict

from deeped_ray.commands.options import Answer, add_kb, entity_table, positive
from deeped_ray.embeddings.words import Words, ranked_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.following import LiveLookup
from deeped_ray.running.console import table
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("title", nargs="*", help="title of an entity, or a redirect to it; several are mixed")
    parser.add_argument("--text", help="a text, mixed with the titles if there are any")
    parser.add_argument("--words", action="store_true", help="closest words instead of entities")
    parser.add_argument("--count", type=positive, default=10, metavar="N", help="how many (default: 10)")
    parser.add_argument(
        "--min-count", type=int, default=0, metavar="N", help="with --words: only words at least this often in the dump"
    )


def run(args: argparse.Namespace) -> Answer:
    if not args.title and not args.text:
        raise DeepEdError("Give the title of an entity, several titles, or --text.")
    kb = KnowledgeBase(args.kb)
    lookup = LiveLookup.open(kb)
    if args.words:
        vector = lookup.mix(args.title, args.text or "")
        rows = ranked_words(Words(kb.open("words")), vector, count=args.count, min_count=args.min_count)
        return [{"word": word, "similarity": similarity} for word, similarity in rows], table(["word", "cosine"], rows)
    nearest = lookup.related(args.title, args.text or "", count=args.count)
    rows = [(near.title, near.similarity) for near in nearest]
    return [asdict(near) for near in nearest], entity_table(["entity", "cosine"], rows, nearest)
