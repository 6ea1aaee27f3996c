import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.corpus import occurrences
from deeped_ray.corpus import pages as pages_module
from deeped_ray.corpus.occurrences import SequenceIndex, join_sequences, later_hashes, rows, write_sequences
from deeped_ray.corpus.pages import write_pages
from deeped_ray.corpus.teaching import Choice
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_mention, unit_spans
from deeped_ray.types import Link, Page

MENTIONS = st.lists(
    st.text("aB. é-", min_size=1, max_size=8).map(normalize_mention).filter(bool), min_size=1, max_size=8, unique=True
)
TEXTS = st.lists(st.text("aB. é-\n", max_size=30), min_size=1, max_size=4)


def index_of(folder: Path, mentions: list[str], *, num_pieces: int = 1) -> SequenceIndex:
    pieces = [piece.tolist() for piece in np.array_split(np.array(mentions, dtype=object), num_pieces)]
    prefixes = [folder / f"piece-{number}" for number in range(num_pieces)]
    for prefix, piece in zip(prefixes, pieces, strict=True):
        write_sequences(prefix, piece)
    join_sequences(prefixes, [len(piece) for piece in pieces], folder)
    return SequenceIndex(folder)


def found_in(text: str, index: SequenceIndex, mentions: list[str]) -> list[str]:
    units = unit_spans(text)
    return [mentions[row] for row in index.find(units.hashes, later_hashes(units.hashes, units.is_spaced)).row]


def counts_of(folder: Path, index: SequenceIndex, pages: list[Page]) -> dict[int, tuple[int, int]]:
    """Row of a mention -> pages, linked pages."""
    write_pages(Location(folder / "pages.parquet"), pages)
    found = rows(Location(folder / "pages.parquet"), index, Choice(0)).to_pylist()
    return {row["mention"]: (row["pages"], row["linked_pages"]) for row in found}


def brute_force(mention: str, page: Page) -> tuple[int, int]:
    """Whether a page has the mention between two borders of units of one line, and whether one such place is a link."""
    units = unit_spans(page.text)
    spans = {(int(start), int(end)) for start in units.starts for end in units.ends if start < end}
    spans = {
        (start, end)
        for start, end in spans
        if "\n" not in page.text[start:end] and normalize_mention(page.text[start:end]) == mention
    }
    return int(bool(spans)), int(any((link.start, link.end) in spans for link in page.links))


@settings(max_examples=80)
@given(MENTIONS, TEXTS, st.integers(1, 3), st.data())
def test_counts_are_those_of_looking_everywhere(
    mentions: list[str], texts: list[str], num_pieces: int, data: st.DataObject
) -> None:
    spans = [data.draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(1, 6)), max_size=4)) for text in texts]
    pages = [
        Page(
            number, f"P{number}", text, tuple(Link(start, min(start + size, len(text)), "X") for start, size in places)
        )
        for number, (text, places) in enumerate(zip(texts, spans, strict=True))
    ]
    expected = {}
    for row, mention in enumerate(mentions):
        counts = np.sum([brute_force(mention, page) for page in pages], axis=0).tolist()
        if counts[0] and len(unit_spans(mention).starts) <= occurrences.MAX_UNITS:
            expected[row] = tuple(counts)
    with tempfile.TemporaryDirectory() as folder:
        index = index_of(Path(folder), mentions, num_pieces=num_pieces)
        assert counts_of(Path(folder), index, pages) == expected


def test_a_page_counts_once_and_is_linked_if_one_of_its_places_is(tmp_path: Path) -> None:
    index = index_of(tmp_path, ["Rome", "New York"])
    pages = [
        Page(1, "A", "Rome, Rome and New York", (Link(6, 10, "Rome"),)),
        Page(2, "B", "Rome", ()),
        Page(3, "C", "Romes", (Link(0, 4, "Rome"),)),  # a link within a word is no place of the mention
    ]
    assert counts_of(tmp_path, index, pages) == {0: (2, 1), 1: (1, 0)}


def test_redirects_and_disambiguation_pages_do_not_count(tmp_path: Path) -> None:
    pages = [Page(1, "A", "Rome", redirect="B"), Page(2, "B", "Rome", is_disambiguation=True)]
    assert counts_of(tmp_path, index_of(tmp_path, ["Rome"]), pages) == {}


def test_lots_of_pages_give_what_all_at_once_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [Page(number, f"P{number}", "Rome in Italy", (Link(0, 4, "Rome"),) * (number % 2)) for number in range(9)]
    index = index_of(tmp_path, ["Rome", "Italy", "Rome in Italy"])
    at_once = counts_of(tmp_path, index, pages)
    monkeypatch.setattr(pages_module, "LOT_CHARACTERS", 20)
    assert counts_of(tmp_path, index, pages) == at_once == {0: (9, 4), 1: (9, 0), 2: (9, 0)}


def test_all_overlapping_mentions_are_found(tmp_path: Path) -> None:
    mentions = ["New York", "York", "New York City", "City", "New"]
    found = found_in("New York City", index_of(tmp_path, mentions), mentions)
    assert sorted(found) == sorted(mentions)


def test_punctuation_and_white_space_belong_to_a_mention(tmp_path: Path) -> None:
    mentions = ["U.S.", "St. Louis", "Apple Inc."]
    index = index_of(tmp_path, mentions)
    assert sorted(found_in("St.  Louis is in the U.S. or", index, mentions)) == ["St. Louis", "U.S."]
    assert found_in("Apple Inc U. S. St.Louis", index, mentions) == []


def test_nothing_is_found_across_the_end_of_a_line_or_sentence(tmp_path: Path) -> None:
    mentions = ["New York"]
    index = index_of(tmp_path, mentions)
    for text in ("New\nYork", "New\r\nYork", "It is New. York is old", "New\u2029York"):
        assert found_in(text, index, mentions) == []


def test_mentions_that_are_too_long_are_not_looked_for(tmp_path: Path) -> None:
    mentions = [" ".join("abcdefghijklmnopqrstuvwx"), " ".join("abcdefghijklmnopqrstuvwxy")]
    assert found_in(mentions[1], index_of(tmp_path, mentions), mentions) == mentions[:1]


def test_an_empty_text_and_a_table_of_nothing_but_long_mentions_are_no_trouble(tmp_path: Path) -> None:
    assert found_in("", index_of(tmp_path, ["Rome"]), ["Rome"]) == []
    index = index_of(tmp_path, [" ".join("abcdefghijklmnopq")])
    assert found_in("a b c d", index, []) == []
