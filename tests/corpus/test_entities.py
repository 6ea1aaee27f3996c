from pathlib import Path

import pytest

from deeped_ray.artifacts import Part
from deeped_ray.corpus.entities import Catalogue, PageHeader, draft_catalogue, write_catalogue
from deeped_ray.types import DeepEdError

HEADERS = [
    PageHeader(20, "Apple Inc.", None, False),
    PageHeader(10, "Apple", None, False),
    PageHeader(11, "Apple (disambiguation)", None, True),
    PageHeader(30, "Apple Computer", "Apple Incorporated", False),
    PageHeader(31, "Apple Incorporated", "Apple Inc.", False),
    PageHeader(40, "Loop A", "Loop B", False),
    PageHeader(41, "Loop B", "Loop A", False),
    PageHeader(42, "Dead end", "Nowhere", False),
]


def test_entities_are_articles_in_order_of_page_id() -> None:
    draft = draft_catalogue(HEADERS)
    assert draft.titles == ["Apple", "Apple Inc."]
    assert draft.page_ids == [10, 20]


def test_redirect_chains_are_followed_and_loops_and_dead_ends_dropped() -> None:
    title_to_id = draft_catalogue(HEADERS).title_to_id
    assert title_to_id["Apple Computer"] == title_to_id["Apple Inc."] == 1
    assert not {"Loop A", "Loop B", "Dead end"} & set(title_to_id)


def test_the_result_does_not_depend_on_the_order_of_pages() -> None:
    assert draft_catalogue(HEADERS[::-1]).title_to_id == draft_catalogue(HEADERS).title_to_id


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    write_catalogue(tmp_path, draft_catalogue(HEADERS), num_links=[3, 4], num_words=[100, 200])
    return Catalogue(Part("corpus", "0", tmp_path, {}))


def test_titles_are_found_by_any_of_their_names(catalogue: Catalogue) -> None:
    assert catalogue.find("apple_Computer") == 1
    assert catalogue.title(1) == "Apple Inc."
    assert catalogue.find("Nowhere") is None


def test_an_unknown_title_is_a_clear_error(catalogue: Catalogue) -> None:
    with pytest.raises(DeepEdError, match="No entity 'Pear'"):
        catalogue.require("Pear")
