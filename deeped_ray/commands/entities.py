"""`deeped entities`: add, take off and list entities of a knowledge base. Servers that run follow within seconds."""

import argparse
import itertools

from deeped_ray.commands.options import Answer, add_kb
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.entity_files import LIMITS, read_entities
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog, Changes
from deeped_ray.running.console import stdout_style, table
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

AT_ONCE = 10_000
"""Entities of one file of changes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    parser.add_argument("action", choices=("add", "remove", "list"))
    parser.add_argument(
        "given", nargs="*", metavar="FILE or NAME", help="add: files of entities; remove: ids or titles"
    )
    parser.add_argument("--since", type=int, default=0, metavar="N", help="list: changes from this number on")


def run(args: argparse.Namespace) -> Answer:
    kb = KnowledgeBase(args.kb)
    log, changes = ChangeLog(kb.home), Changes()
    changes.apply(log.read_new())
    if args.action == "list":
        return _list(changes, args.since)
    if not args.given:
        raise DeepEdError(f"Give {'files of entities to add' if args.action == 'add' else 'ids or titles to remove'}.")
    kb.require_writable()
    kb.open("corpus")  # what is no knowledge base, or none yet, takes no changes
    made, shortened = _added(args.given) if args.action == "add" else (_removed(kb, changes, args.given), [])
    numbers = [log.append(made[start : start + AT_ONCE])[0].number for start in range(0, len(made), AT_ONCE)]
    verb = "added or changed" if args.action == "add" else "taken off"
    told = [f"Entities {verb}: {len(made):,}. Servers that run follow within seconds."]
    if shortened:
        told.append(f"More than is kept ({LIMITS}), so the rest was left out: {', '.join(shortened[:10])}.")
    return {"entities": len(made), "numbers": numbers, "shortened": shortened}, "\n".join(told)


def _added(files: list[str]) -> tuple[list[Change], list[str]]:
    """The changes, and the titles of the entities that had more of something than is kept."""
    entities = list(itertools.chain.from_iterable(read_entities(Location(file)) for file in files))
    shortened = [entity.title for entity in entities if entity.is_shortened]
    return [Change(entity.id or entity.title, entity.values()) for entity in entities], shortened


def _removed(kb: KnowledgeBase, changes: Changes, names: list[str]) -> list[Change]:
    catalogue = Catalogue(kb.open("corpus"))
    for name in names:
        if changes.find(name) is None and catalogue.find(name) is None:
            raise DeepEdError(f"No entity {name!r} in {kb}. `deeped entities --kb {kb} list` shows what was added.")
    return [Change(changes.find(name) or name, None) for name in names]


def _list(changes: Changes, since: int) -> Answer:
    found = changes.since(since)
    rows = [
        {"number": each.number, "time": each.time, "id": each.change.id, "title": each.change.title} for each in found
    ]
    shown = [(row["number"], row["time"], row["id"], row["title"] or "(taken off)") for row in rows]
    text = table(["number", "time", "id", "title"], shown, style=stdout_style()) if rows else "There are no changes."
    return {"changed": rows, "version": changes.version}, text
