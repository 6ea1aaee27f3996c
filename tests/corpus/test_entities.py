from pathlib import Path

import pytest

from deeped_ray.types import DeepEdError, Link, Page
from tests.conftest import make_catalogue

PAGES = [
    Page(20, "Apple Inc.", "", (Link(0, 1, "Pear"), Link(0, 1, "Old pear"))),
    Page(10, "Apple", "", (Link(0, 1, "Apple Computer"), Link(0, 1, "Quince"))),
    Page(11, "Apple (disambiguation)", "", is_disambiguation=True),
    Page(30, "Apple Computer", "", redirect="Apple Incorporated"),
    Page(31, "Apple Incorporated", "", redirect="Apple Inc."),
    Page(32, "Old pear", "", redirect="Pear"),
    Page(40, "Loop A", "", redirect="Loop B"),
    Page(41, "Loop B", "", redirect="Loop A"),
    Page(42, "Dead end", "", redirect="Nowhere"),
]
NO_ENTITIES = ("Loop A", "Loop B", "Dead end", "Nowhere", "Apple (disambiguation)")


def titles_of(tmp_path: Path, pages: list[Page], *, min_links: int = 0) -> list[str]:
    catalogue = make_catalogue(tmp_path, pages, min_links_without_page=min_links)
    return [catalogue.title(entity_id) for entity_id in range(len(catalogue))]


def test_entities_are_articles_in_order_of_page_id(tmp_path: Path) -> None:
    assert titles_of(tmp_path, PAGES) == ["Apple", "Apple Inc."]


def test_titles_without_a_page_follow_if_linked_often_enough(tmp_path: Path) -> None:
    # Pear is linked twice, once through a redirect; Quince once; Nowhere never
    assert titles_of(tmp_path, PAGES, min_links=2) == ["Apple", "Apple Inc.", "Pear"]
    assert titles_of(tmp_path, PAGES, min_links=1) == ["Apple", "Apple Inc.", "Pear", "Quince"]


def test_redirect_chains_are_followed_and_loops_and_dead_ends_dropped(tmp_path: Path) -> None:
    catalogue = make_catalogue(tmp_path, PAGES, min_links_without_page=2)
    assert catalogue.find("apple_Computer") == catalogue.find("Apple Inc.") == 1
    assert catalogue.find("Old pear") == catalogue.find("Pear") == 2
    assert [catalogue.find(title) for title in NO_ENTITIES] == [None] * 5


def test_the_result_does_not_depend_on_the_order_of_pages(tmp_path: Path) -> None:
    for name in ("forward", "backward"):
        (tmp_path / name).mkdir()
    make_catalogue(tmp_path / "forward", PAGES, min_links_without_page=1)
    make_catalogue(tmp_path / "backward", PAGES[::-1], min_links_without_page=1)
    for file in ("entities.arrow", "titles.hashes.npy", "titles.entities.npy", "titles.arrow"):
        assert (tmp_path / "forward" / file).read_bytes() == (tmp_path / "backward" / file).read_bytes()


def test_an_article_wins_over_a_redirect_of_the_same_title(tmp_path: Path) -> None:
    pages = [Page(1, "Apple", "", redirect="Pear"), Page(2, "Pear", ""), Page(3, "Apple", "")]
    catalogue = make_catalogue(tmp_path, pages)
    entity_id = catalogue.find("Apple")
    assert entity_id is not None
    assert catalogue.title(entity_id) == "Apple"


def test_an_unknown_title_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="No entity 'Plum'"):
        make_catalogue(tmp_path, PAGES).require("Plum")
