"""Write a wiki of any size from a real multistream dump, to run what no real dump here is large enough for.

python benchmarks/bigwiki.py --dump samplewiki-pages-articles-multistream.xml.bz2 --size 10 --output big/bigwiki-pages-articles-multistream.xml.bz2
python benchmarks/bigwiki.py --dump samplewiki-pages-articles-multistream.xml.bz2 --laws
python benchmarks/bigwiki.py --dump samplewiki-pages-articles-multistream.xml.bz2 --laws --of big/bigwiki-pages-articles-multistream.xml.bz2

The wiki grows in rounds. Round 0 is the real dump, stream by stream. Each later round has the same pages again: as many
words and links on each, with the same headings, but under new titles, with words and links drawn anew. These laws hold:

    pages, titles, redirects      in proportion to the size, as all pages of a round are new
    words and links of a page     as in the real dump, page for page
    distinct words                Heaps' law, n^b, with b measured on slices of the real dump
    distinct targets of links     Heaps' law, with their own b
    distinct anchors              Heaps' law, with their own b
    words and targets by count    Zipf's law: what is frequent stays so, and what comes new is rare

In round c, a word, target or anchor that the real dump has k times is new with a chance in proportion to (1 + c)^-k. Otherwise it is
what it was in an earlier round, each of which is equally likely. Where counts follow Zipf's law with the exponent 1/b, the
sum of (1 + c)^(b - k) over all types is exactly what Heaps' law adds in round c, K ((1 + c)^b - c^b). The factor before the
power makes it so for real counts too.

A new word is the old one with its letters exchanged by a table of its round, vowels for vowels. So words of a title, of its
anchors and of running text are respelled alike, and names can still be found in text. A new title that has no new word gets
one in brackets, as in "Red River (Dapun)": names become more ambiguous as the wiki grows.

A size below 1 takes streams evenly out of the real dump. The same seed gives the same bytes.
"""

import argparse
import bz2
import itertools
import json
import multiprocessing
import random
import re
import string
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.wikidump import cut_dump, read_siteinfo
from deeped_ray.corpus.wikitext import is_in_other_namespace
from deeped_ray.running.console import table
from deeped_ray.storage.location import Location

KINDS = ("words", "targets", "anchors")
IDS_A_ROUND = 10**8
MAX_SIZE = 256
"""A round's number is held in a byte."""
_LETTERS = r"[^\W\d_]+"
_LINK = r"\[\[([^\[\]|]+)(\|[^\[\]]*)?\]\]"
_TOKEN = re.compile(rf"&#?\w+;|{_LINK}|{_LETTERS}")
_WORD = re.compile(rf"&#?\w+;|{_LETTERS}")
_PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>")
_ID = re.compile(r"<id>(\d+)</id>")
_REDIRECT = re.compile(r'<redirect title="(.*?)"')
_TEXT = re.compile(r"<text\b[^>]*>(.*?)</text>", re.DOTALL)
_SLICES = 5  # a sixteenth, an eighth ... all of it

Bytes = npt.NDArray[np.uint8]


class Stream(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True)
class Dump:
    """A multistream dump: a head, streams of pages, and an end."""

    path: Path

    @cached_property
    def streams(self) -> list[Stream]:
        """Where the pages are. What comes first is the head, and what follows the last of them the end."""
        shards = cut_dump(Location(self.path), shard_bytes=1)
        if shards[0].kind != "streams":
            raise SystemExit(f"{self.path} is no multistream dump (.xml.bz2).")
        *most, (start, end) = [Stream(*shard.offsets) for shard in shards[1:]]
        reader = bz2.BZ2Decompressor()
        if b"<page>" not in reader.decompress(self.read(Stream(start, end))):
            return most
        return [*most, Stream(start, end - len(reader.unused_data))]  # the index does not say where the end begins

    def read(self, stream: Stream) -> bytes:
        with open(self.path, "rb") as source:
            source.seek(stream.start)
            return source.read(stream.end - stream.start)

    def text(self, stream: Stream) -> str:
        return bz2.decompress(self.read(stream)).decode()

    @property
    def head(self) -> bytes:
        return self.read(Stream(0, self.streams[0].start))

    @property
    def end(self) -> bytes:
        return self.read(Stream(self.streams[-1].end, self.path.stat().st_size))


def normalized(title: str) -> str:
    """A title, or target of a link, still with XML's escapes."""
    title = title.replace("_", " ").strip()
    return title[:1].upper() + title[1:]


# -- counting


def count_stream(xml: str) -> tuple[dict[str, Counter[str]], list[str]]:
    """Words, targets and anchors of the articles, and the articles' titles."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    titles = []
    for page in _PAGE.findall(xml):
        text = _TEXT.search(page)
        if text is None or _REDIRECT.search(page):
            continue
        titles += _TITLE.findall(page)[:1]
        links = re.findall(_LINK, text[1])
        counts["targets"].update(normalized(target.partition("#")[0]) for target, _ in links)
        counts["anchors"].update(anchor[1:] or target for target, anchor in links)
        counts["words"].update(re.findall(_LETTERS, text[1].lower()))
    return counts, titles


def _count(job: tuple[Path, Stream]) -> tuple[dict[str, Counter[str]], list[str]]:
    return count_stream(Dump(job[0]).text(job[1]))


class Growth:
    """How many there are of a kind, and how many distinct ones, slice by slice; each slice holds those before it."""

    def __init__(self, num_slices: int) -> None:
        self.num_tokens = np.zeros(num_slices)
        self.num_types = np.zeros(num_slices)
        self._new: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(num_slices)]

    def add(self, counts: Counter[str], place: int) -> None:
        self.num_tokens[place:] += counts.total()
        self._new[place].append(np.fromiter(map(hash, counts), np.int64, len(counts)))

    def finish(self) -> "Growth":
        seen = np.empty(0, np.int64)
        for place, arrays in enumerate(self._new):
            seen = np.unique(np.concatenate([seen, *arrays]))
            self.num_types[place] = len(seen)
        self._new = []
        return self

    @property
    def exponent(self) -> float:
        """Of Heaps' law, by least squares."""
        return float(np.polyfit(np.log(self.num_tokens), np.log(self.num_types), 1)[0])


@dataclass(frozen=True)
class Census:
    """What a real dump holds."""

    counts: dict[str, Counter[str]]
    growth: dict[str, Growth]
    titles: frozenset[str]


def take_census(dump: Dump, *, workers: int) -> Census:
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    growth = {kind: Growth(_SLICES) for kind in KINDS}
    titles: set[str] = set()
    with multiprocessing.Pool(workers) as pool:
        for number, (found, names) in enumerate(pool.imap(_count, [(dump.path, each) for each in dump.streams], 8)):
            # every 16th stream, every 8th and so on: slices of the same mix
            level = (number & -number).bit_length() - 1 if number else _SLICES - 1
            titles.update(names)
            for kind in KINDS:
                counts[kind].update(found[kind])
                growth[kind].add(found[kind], max(0, _SLICES - 1 - level))
    return Census(counts, {kind: each.finish() for kind, each in growth.items()}, frozenset(titles))


# -- drawing anew


def rounds_of_origin(counts: npt.NDArray[np.int64], exponent: float, num_rounds: int, seed: int) -> list[bytes]:
    """For each round and type: the round whose spelling it has."""
    generator = np.random.default_rng(seed)
    origins: Bytes = np.zeros((num_rounds, len(counts)), np.uint8)
    types = np.arange(len(counts))
    for number in range(1, num_rounds):
        weights = (1.0 + number) ** -counts.astype(float)
        added = len(counts) * ((1 + number) ** exponent - number**exponent)
        chances = np.minimum(1, weights * added / weights.sum())
        earlier = origins[generator.integers(0, number, len(counts)), types]
        origins[number] = np.where(generator.random(len(counts)) < chances, number, earlier)
    return [row.tobytes() for row in origins]


def exchange_table(number: int, seed: int) -> dict[int, int]:
    """Letters that stand for letters in words that are new in a round: none stays what it is."""
    exchanged: dict[int, int] = {}
    draw = random.Random(f"{seed}-{number}")
    for letters in ("aeiou", "".join(sorted({*string.ascii_lowercase} - {*"aeiou"}))):
        order = draw.sample(letters, len(letters))
        for old, new in zip(order, order[1:] + order[:1], strict=True):
            exchanged |= {ord(old): ord(new), ord(old.upper()): ord(new.upper())}
    return exchanged


class Names:
    """Types with the rounds of their spellings."""

    def __init__(self, counts: Counter[str], exponent: float, num_rounds: int, seed: int) -> None:
        self._numbers = {name: number for number, name in enumerate(counts)}
        self._origins = rounds_of_origin(np.fromiter(counts.values(), np.int64), exponent, num_rounds, seed)

    def origin(self, name: str, number: int) -> int:
        place = self._numbers.get(name)
        return 0 if place is None else self._origins[number][place]


class Rewriter:
    """Pages of the real dump -> pages of a later round."""

    def __init__(self, census: Census, namespaces: frozenset[str], *, num_rounds: int, seed: int) -> None:
        self._words, self._targets, self._anchors = (
            Names(census.counts[kind], census.growth[kind].exponent, num_rounds, seed + place)
            for place, kind in enumerate(KINDS)
        )
        self._tables = [exchange_table(number, seed) for number in range(num_rounds)]
        self._titles, self._namespaces = census.titles, namespaces

    def respell(self, text: str, number: int) -> str:
        """Running text, or a name, as it is written in a round."""

        def word(match: re.Match[str]) -> str:
            found = match[0]
            origin = self._words.origin(found.lower(), number)
            return found.translate(self._tables[origin]) if origin and found[0] != "&" else found

        return _WORD.sub(word, text)

    def title(self, key: str, number: int) -> str:
        """What a round calls the page that the real dump calls `key`: no other round calls one so."""
        if not number:
            return key
        words = [found for found in _WORD.findall(key) if found[0] != "&"]
        spelled = self.respell(key, number)
        if any(self._words.origin(word.lower(), number) == number for word in words):
            return spelled
        own = max(words, key=len, default="Item").translate(self._tables[number]).capitalize()
        return f"{spelled[:-1]}, {own})" if spelled.endswith(")") else f"{spelled} ({own})"

    def page(self, xml: str, number: int) -> str:
        redirect = _REDIRECT.search(xml)
        leads_to = self._redirect(normalized(redirect[1]), number) if redirect else None
        xml = _TITLE.sub(lambda found: f"<title>{self.title(normalized(found[1]), number)}</title>", xml, count=1)
        xml = _ID.sub(lambda found: f"<id>{int(found[1]) + IDS_A_ROUND * number}</id>", xml, count=1)
        xml = _REDIRECT.sub(lambda _: f'<redirect title="{leads_to}"', xml)
        return _TEXT.sub(lambda found: self._text_element(found[1], leads_to, number), xml, count=1)

    def _redirect(self, key: str, number: int) -> str:
        """A redirect to a page leads to the page of its own round."""
        return self.title(key, number if key in self._titles else self._targets.origin(key, number))

    def _text_element(self, text: str, leads_to: str | None, number: int) -> str:
        content = f"#REDIRECT [[{leads_to}]]" if leads_to else self._text(text, number)
        return f'<text xml:space="preserve">{content}</text>'

    def _text(self, text: str, number: int) -> str:
        word_origin, tables = self._words.origin, self._tables

        def token(match: re.Match[str]) -> str:
            found = match[0]
            if found[0] == "[":
                return self._link(match, number)
            origin = word_origin(found.lower(), number)
            return found.translate(tables[origin]) if origin and found[0] != "&" else found

        return _TOKEN.sub(token, text)

    def _link(self, match: re.Match[str], number: int) -> str:
        target, anchor = match[1], match[2]
        if ":" in target and is_in_other_namespace(target, self._namespaces):
            return match[0]
        page, mark, section = target.partition("#")
        key = normalized(page)
        origin = self._targets.origin(key, number)
        title, shown = self.title(key, origin), self._anchor(anchor[1:] if anchor else target, origin, number)
        if not anchor and normalized(shown) == title:
            return f"[[{shown}]]"
        return f"[[{title}{mark}{section}|{shown}]]"

    def _anchor(self, text: str, origin: int, number: int) -> str:
        """As the title that it leads to; if all words of that are old, the anchor may still be new."""
        spelled = self.respell(text, origin)
        own = self._anchors.origin(text, number)
        words = [found for found in _WORD.findall(text) if found[0] != "&"]
        if not own or not words or spelled != text:
            return spelled
        longest = max(words, key=len)
        return text.replace(longest, longest.translate(self._tables[own]), 1)


# -- writing


class Made(NamedTuple):
    """A stream of the new dump, and its lines for the index."""

    content: bytes
    pages: list[tuple[int, str]]


_shared: tuple[Dump, Rewriter]


def _make(job: tuple[int, Stream]) -> Made:
    number, stream = job
    dump, rewriter = _shared
    content = dump.read(stream)
    xml = bz2.decompress(content).decode()
    if number:
        xml = _PAGE.sub(lambda found: rewriter.page(found[0], number), xml)
        content = bz2.compress(xml.encode())
    return Made(content, list(zip(map(int, _first(_ID, xml)), _first(_TITLE, xml), strict=True)))


def _first(pattern: re.Pattern[str], xml: str) -> Iterator[str]:
    for page in _PAGE.findall(xml):
        yield pattern.findall(page)[0]


def planned(streams: list[Stream], size: float) -> Iterator[tuple[int, Stream]]:
    """Round and stream, in the order of the new dump. Of the last round some are left out, evenly."""
    for number in range(int(np.ceil(size))):
        share = min(1.0, size - number)
        for place, stream in enumerate(streams):
            if int((place + 1) * share + 1e-9) > int(place * share + 1e-9):
                yield number, stream


def written(dump: Dump, count: int) -> Iterator[Made]:
    """The first streams of a dump that has been written."""
    with bz2.open(index_of(dump.path), "rt", encoding="utf-8") as lines:
        pages = (line.rstrip("\n").split(":", 2) for line in lines)
        streams = itertools.groupby(pages, key=lambda page: page[0])
        for stream, (_, found) in itertools.islice(zip(dump.streams, streams, strict=True), count):
            yield Made(dump.read(stream), [(int(page_id), title) for _, page_id, title in found])


def index_of(dump: Path) -> Path:
    return dump.with_name(dump.name.replace(".xml.bz2", "-index.txt.bz2"))


def write_wiki(
    dump: Dump, target: Path, census: Census, *, size: float, seed: int, workers: int, after: Path | None = None
) -> dict[str, int]:
    """Write the dump and its index; pages and bytes of it. The rounds of a smaller one, `after` which it goes on, are copied."""
    global _shared  # workers are forks of this process: what it holds is theirs without a copy
    namespaces = read_siteinfo(Location(dump.path)).namespaces
    _shared = (dump, Rewriter(census, namespaces, num_rounds=int(np.ceil(size)), seed=seed))
    index, num_known = index_of(target), 0
    if after:
        num_known = len(Dump(after).streams) // len(dump.streams) * len(dump.streams)
    target.parent.mkdir(parents=True, exist_ok=True)
    num_pages, unfinished = 0, target.with_name(f"{target.name}.part")
    with (
        multiprocessing.get_context("fork").Pool(workers) as pool,
        open(unfinished, "wb") as sink,
        bz2.open(index, "wt", encoding="utf-8") as lines,
    ):
        sink.write(dump.head)
        known = written(Dump(after), num_known) if after else ()
        jobs = itertools.islice(planned(dump.streams, size), num_known, None)
        for made in itertools.chain(known, pool.imap(_make, jobs, 4)):
            lines.writelines(f"{sink.tell()}:{page_id}:{title}\n" for page_id, title in made.pages)
            sink.write(made.content)
            num_pages += len(made.pages)
        sink.write(dump.end)
    unfinished.replace(target)
    return {"pages": num_pages, "bytes": target.stat().st_size}


# -- what came of the laws


def grown(dump: Dump, num_a_round: int, *, workers: int) -> dict[str, Growth]:
    """The growth of a written dump, round by round."""
    num_rounds = -(-len(dump.streams) // num_a_round)
    growth = {kind: Growth(num_rounds) for kind in KINDS}
    with multiprocessing.Pool(workers) as pool:
        for number, (found, _) in enumerate(pool.imap(_count, [(dump.path, each) for each in dump.streams], 8)):
            for kind in KINDS:
                growth[kind].add(found[kind], number // num_a_round)
    return {kind: each.finish() for kind, each in growth.items()}


def law_rows(census: Census, written: dict[str, Growth] | None) -> Iterable[tuple[object, ...]]:
    for kind in KINDS:
        growth, counts = census.growth[kind], census.counts[kind]
        once = sum(count == 1 for count in counts.values()) / len(counts)
        yield kind, "the real dump", growth.num_tokens[-1], growth.num_types[-1], growth.exponent, once, ""
        for place in range(len(written[kind].num_types)) if written else []:
            tokens, types = written[kind].num_tokens[place], written[kind].num_types[place]  # type: ignore[index]
            law = growth.num_types[-1] * (tokens / growth.num_tokens[-1]) ** growth.exponent
            yield kind, f"{place + 1} rounds", tokens, types, "", "", types / law


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, required=True, help="a real multistream dump, .xml.bz2")
    parser.add_argument("--output", type=Path, help="where to write the new dump, .xml.bz2; its index comes beside it")
    parser.add_argument("--size", type=float, default=1.0, help="in sizes of the real dump (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--after", type=Path, help="a smaller one by the same seed: its whole rounds are copied")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument(
        "--laws", action="store_true", help="print how words, targets and anchors grow in the real dump"
    )
    parser.add_argument("--of", type=Path, help="with --laws: and in this written dump")
    args = parser.parse_args()
    if not 0 < args.size <= MAX_SIZE:
        parser.error(f"--size must be above 0 and at most {MAX_SIZE}")
    dump, start = Dump(args.dump), time.perf_counter()
    census = take_census(dump, workers=args.workers)
    if args.output:
        made = write_wiki(
            dump, args.output, census, size=args.size, seed=args.seed, workers=args.workers, after=args.after
        )
        print(json.dumps({**made, "seconds": round(time.perf_counter() - start, 1)}))
    if args.laws:
        written = grown(Dump(args.of), len(dump.streams), workers=args.workers) if args.of else None
        print(
            table(
                ["what", "of", "all", "distinct", "exponent", "once", "over the law"], list(law_rows(census, written))
            )
        )


if __name__ == "__main__":
    main()
