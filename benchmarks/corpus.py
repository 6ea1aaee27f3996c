"""Megabytes of export XML per second on one core: dump to pages with plain text and links, ours against other parsers.

The baseline is mwparserfromhell, which most people would pick, over the same XML reader; its links are those that
`filter_wikilinks` finds. wikitextparser and gensim's WikiCorpus filter (text only, no links) are measured too where they
are installed. Give real wikitext by --dump: the mini encyclopedia, the default, has little markup.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

import mwparserfromhell
from _harness import best_seconds, finish, parse

from deeped_ray.corpus.wikidump import DumpStats, RawPage, read_dump
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.mini import MINI_DUMP


def by_mwparserfromhell(page: RawPage) -> object:
    code = mwparserfromhell.parse(page.wikitext)
    return code.strip_code(), [(str(link.title), str(link.text)) for link in code.filter_wikilinks()]


def by_wikitextparser(page: RawPage) -> object:
    code = importlib.import_module("wikitextparser").parse(page.wikitext)
    return code.plain_text(), [(link.title, link.text) for link in code.wikilinks]


def by_gensim(page: RawPage) -> object:
    return importlib.import_module("gensim.corpora.wikicorpus").filter_wiki(page.wikitext)


def read_and(parse_one: Callable[[RawPage], object], path: Path) -> int:
    return sum(parse_one(page) is not None for page in read_dump(path, DumpStats()))


def main() -> None:
    args = parse(__doc__, needs_kb=False, dump=MINI_DUMP)
    num_bytes = sum(len(page.wikitext.encode()) for page in read_dump(args.dump, DumpStats()))
    others = {"mwparserfromhell": by_mwparserfromhell, "wikitextparser": by_wikitextparser, "gensim": by_gensim}
    speeds = {"deeped-ray": num_bytes / 1e6 / best_seconds(lambda: read_and(parse_page, args.dump))}
    for name, function in others.items():
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        seconds = best_seconds(lambda function=function: read_and(function, args.dump), repeats=2)  # type: ignore[misc]
        speeds[name] = num_bytes / 1e6 / seconds
    finish(
        args,
        claim=f"reading {args.dump.name}, {num_bytes / 1e6:.1f} MB of wikitext, one core",
        unit="MB",
        ours=speeds["deeped-ray"],
        baseline=speeds["mwparserfromhell"],
        baseline_name="mwparserfromhell",
        others={name: speed for name, speed in speeds.items() if name not in ("deeped-ray", "mwparserfromhell")},
    )


if __name__ == "__main__":
    main()
