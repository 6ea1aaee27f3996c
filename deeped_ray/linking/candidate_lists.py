"""Candidates from outside the knowledge base, mention by mention: `ppr:FILE`, the layout of PPRforNED.

    doc_id  mention_index  mention  gold_title  gold_page_id  [[title, page_id, in_count, out_count], ...]

Tab-separated, with a header. `mention_index` counts all annotated mentions of an AIDA document, including those outside
Wikipedia. The lists have no p(e|m): `mention_counts` computes one.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Document, Mention

_HEADER = ["doc_id", "mention_index", "mention", "gold_title", "gold_page_id", "candidates"]


class ListedCandidate(NamedTuple):
    title: str
    page_id: int
    num_links: int
    """`in_count`: how often the page is linked, whatever the link text."""


class CandidateLists:
    """Candidates by document and mention number."""

    def __init__(self, specs: Sequence[str]) -> None:
        self.specs = tuple(specs)
        self._rows: dict[tuple[str, int], tuple[str, list[ListedCandidate]]] = {}
        for spec in specs:
            self._rows.update(_read_ppr(list_path(spec)))

    def find(self, document: Document, mention: Mention) -> list[ListedCandidate] | None:
        """The candidates of a mention; None if it has no list."""
        surface, candidates = self._rows.get((_document_id(document), mention.number), ("", None))
        # data sets differ in where they put spaces around dots
        if candidates is not None and "".join(surface.split()) != "".join(document.surface(mention).split()):
            raise DeepEdError(
                f"Mention {mention.number} of document {_document_id(document)} is {surface!r} in {', '.join(self.specs)}"
                f" but {document.surface(mention)!r} in the data set. Is this the list of another data set?"
            )
        return candidates

    def check(self, documents: Iterable[Document]) -> None:
        """Fail unless at least one mention has a list: otherwise the lists belong to other documents."""
        found = [self.find(document, mention) is not None for document in documents for mention in document.mentions]
        if self.specs and not any(found):
            raise DeepEdError(
                f"{', '.join(self.specs)} has a list for none of the data set's mentions. Is this the list of another data set?"
            )

    def all_candidates(self) -> Iterator[ListedCandidate]:
        for _, candidates in self._rows.values():
            yield from candidates


def list_path(spec: str) -> Location:
    kind, _, name = spec.partition(":")
    if kind != "ppr" or not name:
        raise DeepEdError(f"Cannot read candidate list {spec!r}. Expected ppr:FILE.")
    return Location(name)


def _document_id(document: Document) -> str:
    """`947testa` of `947testa CRICKET`."""
    return document.name.partition(" ")[0]


def _read_ppr(path: Location) -> Iterator[tuple[tuple[str, int], tuple[str, list[ListedCandidate]]]]:
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if number == 1:
            if cells != _HEADER:
                raise DeepEdError(f"{path} is not a ppr file: expected {', '.join(_HEADER)}, found {line[:60]!r}.")
            continue
        try:
            document_id, place, surface, _, _, listed = cells
            candidates = [
                ListedCandidate(normalize_title(title), int(page_id), int(in_count))
                for title, page_id, in_count, *_ in json.loads(listed)
            ]
            yield (document_id, int(place)), (surface, candidates)
        except (ValueError, TypeError) as error:
            raise DeepEdError(f"{path}, line {number}: {error}.") from error
