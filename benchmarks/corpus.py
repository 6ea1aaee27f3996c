"""Megabytes of export XML per second on one core: a dump in, plain text and links out, ours against what one would pick instead.

Every reader gets the same plain XML file, from the head of the dump and with <ns>0</ns> added where the export is too old
to say it: some read nothing without. What is measured is the processor time from XML to text and links in one process:
no decompression, no worker processes, nothing written. `links` are those that a reader finds, each by its own rules: the
general parsers count files, categories and what stands in templates too.

    mwparserfromhell    over mwxml; strip_code and filter_wikilinks
    wikitextparser      over mwxml; plain_text and wikilinks
    wikiextractor       its own reader; links kept, templates not expanded
    wikipedia2vec       the parser of its dump builder (mwparserfromhell inside, result pickled and compressed) over our reader
    gensim              WikiCorpus's reader and filter_wiki; text only

`pip install -e '.[bench]'` installs them; what is missing is skipped. Give real wikitext by --dump, as often as you like:
the mini encyclopedia, the default, has little markup.
"""

import bz2
import gzip
import pickle
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from _harness import best_seconds, parse, write_json

from deeped_ray.corpus.wikidump import DumpStats, read_dump, read_siteinfo
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location

HEAD_MB, ROUNDS = 20, 3
OURS, BASELINE = "deeped-ray", "mwparserfromhell"


class Figures(NamedTuple):
    mb_per_s: float
    links: int | None
    """None for a reader that keeps no links."""


def by_deeped_ray(dump: Path) -> int:
    site = read_siteinfo(Location(dump))
    return sum(len(parse_page(raw, site).links) for raw in read_dump(Location(dump), DumpStats()))


def by_mwparserfromhell(dump: Path) -> int:
    import mwparserfromhell
    import mwxml

    num_links = 0
    with open(dump, "rb") as source:
        for page in mwxml.Dump.from_file(source):
            for revision in page:
                code = mwparserfromhell.parse(revision.text or "")
                code.strip_code()
                num_links += len([(str(link.title), str(link.text)) for link in code.filter_wikilinks()])
    return num_links


def by_wikitextparser(dump: Path) -> int:
    import mwxml
    import wikitextparser

    num_links = 0
    with open(dump, "rb") as source:
        for page in mwxml.Dump.from_file(source):
            for revision in page:
                code = wikitextparser.parse(revision.text or "")
                num_links += len([(link.title, link.text) for link in code.wikilinks])
                code.plain_text()  # last, for it changes what it reads
    return num_links


def by_wikiextractor(dump: Path) -> int:
    from wikiextractor import WikiExtractor
    from wikiextractor.extract import Extractor

    WikiExtractor.templateNamespace = "Template:"  # its main() takes it from siteinfo; while it is "", no page passes
    num_links = 0
    with open(dump, encoding="utf-8") as source:
        for page_id, revision_id, title, lines in WikiExtractor.collect_pages(source):
            extractor = Extractor(page_id, revision_id, "", title, lines, keepLinks=True)
            paragraphs = extractor.clean_text("".join(lines), expand_templates=False)
            num_links += sum(paragraph.count("&lt;a href=") for paragraph in paragraphs)
    return num_links


def by_wikipedia2vec(dump: Path) -> int:
    from wikipedia2vec.dump_db import _parse_page
    from wikipedia2vec.utils.wiki_page import WikiPage

    num_links = 0
    for raw in read_dump(Location(dump), DumpStats()):
        parsed = _parse_page(WikiPage(raw.title, "en", raw.wikitext, raw.redirect), None)
        if parsed and parsed[0] == "page":
            paragraphs, _ = pickle.loads(zlib.decompress(parsed[1][1]))
            num_links += sum(len(links) for _, links, _ in paragraphs)
    return num_links


def by_gensim(dump: Path) -> None:
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    with open(dump, "rb") as source:
        for _, wikitext, _ in extract_pages(source, ["0"]):
            filter_wiki(wikitext)


READERS: dict[str, Callable[[Path], int | None]] = {
    OURS: by_deeped_ray,
    BASELINE: by_mwparserfromhell,
    "wikitextparser": by_wikitextparser,
    "wikiextractor": by_wikiextractor,
    "wikipedia2vec": by_wikipedia2vec,
    "gensim": by_gensim,
}


def write_head(dump: Path, target: Path) -> None:
    """The whole pages among the first megabytes of a dump, as plain XML that every reader takes."""
    opener: Any = {".bz2": bz2.open, ".gz": gzip.open}.get(dump.suffix, open)
    with opener(dump, "rb") as source:
        xml = source.read(HEAD_MB * 10**6)
    xml = xml[: xml.rindex(b"</page>")] + b"</page>\n</mediawiki>\n"
    target.write_bytes(xml if b"<ns>" in xml else xml.replace(b"</title>", b"</title>\n    <ns>0</ns>"))


def measure(name: str, dump: Path) -> Figures | None:
    """None, with a line that says why, for a reader that is missing or broken."""
    found: list[int | None] = []
    try:
        seconds = best_seconds(lambda: found.append(READERS[name](dump)), repeats=1, clock=process_time)
    except Exception as error:  # a competitor's, of whatever kind: it must not end the report
        print(f"  {name} is left out: {type(error).__name__}: {error}")
        return None
    return Figures(dump.stat().st_size / 1e6 / seconds, found[0])


def best_of_rounds(dump: Path) -> dict[str, Figures]:
    """All readers in turn, a few times: a shared machine's bad moments then hit every one of them."""
    best: dict[str, Figures] = {}
    names = list(READERS)
    for _ in range(ROUNDS):
        figures = {name: found for name in names if (found := measure(name, dump))}
        best = {
            name: max(found, best.get(name, found), key=lambda each: each.mb_per_s) for name, found in figures.items()
        }
        names = list(figures)
    return best


def main() -> None:
    args = parse(__doc__, needs_kb=False, dump=MINI_DUMP)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        head = Path(folder) / "head.xml"
        for dump in args.dump:
            write_head(dump, head)
            print(f"{dump.name}, {head.stat().st_size / 1e6:.1f} MB of XML, one core")
            results[dump.name] = figures = best_of_rounds(head)
            rows = [
                (name, mb_per_s, "text only" if links is None else f"{links:,}", figures[OURS].mb_per_s / mb_per_s)
                for name, (mb_per_s, links) in figures.items()
            ]
            print(table(["who", "MB/s", "links", "ours / theirs"], rows), end="\n\n")
    ratios = [found[OURS].mb_per_s / found[BASELINE].mb_per_s for found in results.values() if BASELINE in found]
    write_json(
        args,
        claim="dump to text and links, one core",
        ratio=min(ratios, default=None),
        unit="MB/s",
        baseline_name=BASELINE,
        dumps={name: {who: found._asdict() for who, found in figures.items()} for name, figures in results.items()},
    )


if __name__ == "__main__":
    main()
