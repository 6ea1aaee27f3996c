"""Articles that teach the linker: a small share of the dump, kept out of everything that is counted.

    teaching.parquet    documents: the article, its text, and of every mention its place and the title it leads to
    teaching.json       which articles were chosen

Links are annotations that every wiki brings along. An article whose links are counted cannot teach: the prior would know
its answers. So the links of a teaching article enter no prior, no window, no graph, no count of occurrences, and no count
of links that makes a title without a page an entity. Its words stay those of its own entity.

Articles are chosen by a hash of their title, lowest first, so the choice does not depend on how the dump is cut. One in
five is for validation. Wikipedia links a name where it stands first: the same name further on is a mention too. An article
is cut between its lines into documents of a few dozen mentions.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deeped_ray.corpus.pages import Bools, Keys, read_pages
from deeped_ray.corpus.shuffle import read_merged
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64, hashes_of
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location
from deeped_ray.types import Document, Mention, Page

Split = Literal["train", "dev"]
MAX_MENTIONS = 40
"""Of a document."""
VALIDATION_ONE_IN = 5
_FILE, _CHOICE = "teaching.parquet", "teaching.json"
_MENTION = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("target", pa.string()), ("is_link", pa.bool_())])
_SCHEMA = pa.schema(
    [("key", pa.uint64()), ("article", pa.string()), ("text", pa.string()), ("mentions", pa.list_(_MENTION))]
)


@dataclass(frozen=True)
class Choice:
    """Which articles teach: those whose key is below the bound."""

    bound: int

    @classmethod
    def at_most(cls, share: float) -> "Choice":
        return cls(int(share * 2**64))

    def are_chosen(self, titles: Sequence[str]) -> Bools:
        if not self.bound:
            return np.zeros(len(titles), dtype=bool)
        return np.fromiter((key_of(title) < self.bound for title in titles), dtype=bool, count=len(titles))


def key_of(title: str) -> int:
    return hash64(f"teaching\t{title}")


def is_for_validation(article: str) -> bool:
    return hash64(f"validation\t{article}") % VALIDATION_ONE_IN == 0


# -- choosing


def pick(shard: Location, target: Location, choice: Choice, keys: Keys | None = None) -> list[tuple[int, int]]:
    """Write the documents of a shard's articles that may teach; returns key and number of links of each article."""
    found, rows = [], list[dict[str, Any]]()
    for page in read_pages(shard, keys):
        if page.redirect is None and not page.is_disambiguation and page.links:
            key = key_of(page.title)
            if key < choice.bound:
                found.append((key, len(page.links)))
                rows += [{"key": key, **row} for row in documents_of(page)]
    with target.writing() as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), path, compression="zstd")
    return found


def cut(articles: Iterable[tuple[int, int]], choice: Choice, *, num_links: int) -> Choice:
    """The choice with at most so many links, given key and number of links of every article that may teach."""
    total = 0
    for key, links in sorted(articles):
        total += links
        if total > num_links:
            return Choice(key)
    return choice


def join(
    files: Sequence[Location], choice: Choice, folder: Path, *, kept: Part | None = None, without: Sequence[str] = ()
) -> pa.Table:
    """All documents of the chosen articles in one file, in the order of their keys.

    `kept` is a corpus whose documents are taken over, but for those of the articles `without`.
    """
    found = [_SCHEMA.empty_table(), *([read_merged(files)] if files else [])]
    if kept:
        earlier = read_table(kept.path / _FILE)
        found.append(earlier.filter(pc.invert(pc.is_in(earlier["article"], pa.array(without, pa.string())))))
    table = pa.concat_tables(found)
    table = table.filter(pc.less(table["key"], pa.scalar(choice.bound, pa.uint64()))) if choice.bound < 2**64 else table
    order = np.argsort(table["key"].to_numpy(), kind="stable")  # documents of an article stay in order
    table = table.take(pa.array(order)).combine_chunks()
    pq.write_table(table, folder / _FILE, compression="zstd")
    Location(folder / _CHOICE).write_json({"bound": choice.bound})
    return table


def choice_of(corpus: Part) -> Choice:
    return Choice((corpus.location / _CHOICE).read_json()["bound"])


def targets_of(table: pa.Table) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hashes of the titles that the links of teaching articles lead to, one for each link."""
    mentions = pa.chunked_array([chunk.flatten() for chunk in table["mentions"].chunks], _MENTION)
    links = mentions.filter(pc.struct_field(mentions, "is_link"))
    return hashes_of(pc.struct_field(links, "target").to_pylist())


# -- an article as documents


class Place(NamedTuple):
    """A mention in an article."""

    start: int
    end: int
    target: str
    is_link: bool
    """False where the name is repeated without a link."""


def documents_of(page: Page) -> Iterator[dict[str, Any]]:
    """The lines of an article, a few dozen mentions at a time; stretches without a mention are left out."""
    links = (Place(link.start, link.end, link.target, True) for link in page.links)
    places = [link for link in links if (text := page.text[link.start : link.end]) and "\n" not in text]
    places = sorted(places + list(repeats(page.text, places)))
    for start, end, own in _cut(page.text, places):
        yield {
            "article": page.title,
            "text": page.text[start:end],
            "mentions": [{**each._asdict(), "start": each.start - start, "end": each.end - start} for each in own],
        }


def repeats(text: str, links: Sequence[Place]) -> Iterator[Place]:
    """Names that are linked once and stand again, whole, outside links, after the link. A name that leads to two targets is left out."""
    targets: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    for link in links:
        surface = text[link.start : link.end]
        targets.setdefault(surface, set()).add(link.target)
        first.setdefault(surface, link.end)
    taken = bytearray(len(text))
    for link in links:
        taken[link.start : link.end] = b"\1" * (link.end - link.start)
    # the longest first: `New York City` is not another `New York`
    for surface in sorted(targets, key=lambda each: (-len(each), each)):
        if len(targets[surface]) > 1 or not is_name(surface):
            continue
        start = text.find(surface, first[surface])
        while start >= 0:
            end = start + len(surface)
            if is_whole(text, start, end) and not any(taken[start:end]):
                taken[start:end] = b"\1" * len(surface)
                yield Place(start, end, min(targets[surface]), False)
            start = text.find(surface, end)


def is_name(surface: str) -> bool:
    """Whether a string can be a name by its form: two letters or more, the first not in lower case."""
    letters = [each for each in surface if each.isalpha()]
    return len(letters) > 1 and not letters[0].islower()


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether no word goes on beyond the ends. In scripts without case, words need not be apart."""
    return not (start and _continues(text[start - 1], text[start])) and not (
        end < len(text) and _continues(text[end - 1], text[end])
    )


def _continues(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum() and left.lower() != left.upper() and right.lower() != right.upper()


def _cut(text: str, places: Sequence[Place]) -> Iterator[tuple[int, int, list[Place]]]:
    """Stretches of whole lines, each with at most MAX_MENTIONS mentions; a line with more is cut between two of them."""
    ends = [*(place for place, each in enumerate(text, 1) if each == "\n"), len(text)]
    start, own = 0, list[Place]()
    waiting = list(reversed(places))
    for line_start, line_end in itertools.pairwise([0, *ends]):
        line = list[Place]()
        while waiting and waiting[-1].start < line_end:
            line.append(waiting.pop())
        if own and len(own) + len(line) > MAX_MENTIONS:
            yield start, line_start, own
            start, own = line_start, []
        while len(own) + len(line) > MAX_MENTIONS:
            own, line = own + line[: MAX_MENTIONS - len(own)], line[MAX_MENTIONS - len(own) :]
            yield start, line[0].start, own
            start, own = line[0].start, []
        own += line
    if own:
        yield start, len(text), own


# -- reading


def read(corpus: Part, split: Split) -> list[Document]:
    """The documents that teach, or those for validation. Links and repeated names are mentions; targets are their gold titles."""
    path = corpus.path / _FILE
    if not path.exists():  # made before there were any
        return []
    documents = []
    for number, row in enumerate(read_table(path, columns=["article", "text", "mentions"]).to_pylist()):
        if is_for_validation(row["article"]) == (split == "dev"):
            mentions = tuple(Mention(each["start"], each["end"], each["target"]) for each in row["mentions"])
            documents.append(Document(f"{row['article']}, {number}", row["text"], mentions))
    return documents
