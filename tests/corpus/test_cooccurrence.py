from pathlib import Path

import numpy as np
import pyarrow as pa

from deeped_ray.corpus.cooccurrence import (
    Tokens,
    WordCounts,
    edges,
    join,
    page_words,
    reduce,
    rows,
    tokens_of,
    words_around,
)
from deeped_ray.corpus.pages import Links, Lot, read_lots, write_pages
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location
from deeped_ray.types import Link, Page

TEXT = "Golden apples ripen while Queen plays loud music near orchards"
WORDS = [word for word in TEXT.split() if word != "while"]
VOCABULARY = Vocabulary.of(WORDS)


def lot_of(folder: Path, *pages: Page) -> Lot:
    write_pages(Location(folder / "pages.parquet"), pages)
    (lot,) = read_lots(Location(folder / "pages.parquet"))
    return lot


def words_of(tokens: Tokens, links: Links, *, window: int) -> list[list[str]]:
    """The words around every link."""
    place, ids = words_around(tokens, links, window=window)
    return [[WORDS[word] for word in ids[place == number]] for number in range(len(links.page))]


def windows(folder: Path, *links: Link, window: int) -> list[list[str]]:
    lot = lot_of(folder, Page(1, "Before", TEXT), Page(2, "Queen", TEXT, links), Page(3, "After", TEXT))
    return words_of(tokens_of(lot, VOCABULARY), Links.of(lot, np.zeros(len(links), np.int64)), window=window)


def test_tokens_are_ids_of_the_vocabulary_by_page(tmp_path: Path) -> None:
    tokens = tokens_of(
        lot_of(tmp_path, Page(1, "A", "loud while"), Page(2, "B", ""), Page(3, "C", "Queen")), VOCABULARY
    )
    assert tokens.ids.tolist() == [WORDS.index("loud"), -1, WORDS.index("Queen")]
    assert tokens.borders.tolist() == [0, 2, 2, 3]


def test_link_windows_leave_out_the_link_and_count_before_dropping_stop_words(tmp_path: Path) -> None:
    start = TEXT.index("Queen")
    # `while` takes a place but carries nothing
    expected = ["apples", "ripen", "plays", "loud", "music"]
    assert windows(tmp_path, Link(start, start + 5, "Queen (band)"), window=6) == [expected]


def test_windows_end_with_their_page(tmp_path: Path) -> None:
    last = TEXT.index("orchards")
    links = (Link(0, len("Golden apples"), "Apple"), Link(last, last + 8, "Orchard"))
    assert windows(tmp_path, *links, window=4) == [["ripen"], ["music", "near"]]


def test_words_of_a_page_include_its_title_and_edges_lead_from_it(tmp_path: Path) -> None:
    pages = [Page(1, "Queen", "loud music"), Page(2, "Nobody", "loud", (Link(0, 4, "X"),))]
    lot = lot_of(tmp_path, *pages)
    owners = np.array([7, -1])
    entities, words = page_words(lot, tokens_of(lot, VOCABULARY), owners, VOCABULARY)
    assert entities.tolist() == [7, 7, 7]
    assert [WORDS[word] for word in words] == ["loud", "music", "Queen"]
    links = Links.of(lot, np.array([5]))
    assert [column.tolist() for column in edges(links, owners)] == [[], []]
    assert [column.tolist() for column in edges(links, np.array([7, 8]))] == [[8], [5]]


def test_counts_of_several_shards_are_added_up_and_read_back_by_entity(tmp_path: Path) -> None:
    shards = [rows([(np.array([2, 2, 2, 0]), np.array([7, 3, 3, 1]))]), rows([(np.array([2, 0]), np.array([3, 1]))])]
    table = pa.concat_tables(shards)
    for piece, entities in enumerate([range(2), range(2, 4)]):
        is_theirs = [row["entity"] in entities for row in table.to_pylist()]
        reduce(table.filter(pa.array(is_theirs)), entities, tmp_path / f"piece-{piece}")
    join([tmp_path / "piece-0", tmp_path / "piece-1"], tmp_path / "page_words")
    counts = WordCounts(Part("corpus", "0", Location(tmp_path), {}), "page_words")
    found = [[column.tolist() for column in counts.row(entity)] for entity in range(4)]
    assert found == [[[1], [2]], [[], []], [[3, 7], [3, 1]], [[], []]]
