"""The sharded join finds the same entities, in the same order, as following redirects in one dict."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.corpus.resolving import Taken
from deeped_ray.corpus.titles import MAX_REDIRECTS
from deeped_ray.knowledge.strings import hashes_of, read_strings
from deeped_ray.types import DeepEdError, Link, Page
from tests.conftest import resolve_pages

TITLES = st.sampled_from(["A", "a", "Ab", "AB", "B", "C", "Ähre", "Zoë", "A long title", "A long title (2)"])
PAGES = st.lists(
    st.builds(
        Page,
        page_id=st.integers(0, 2**40),
        title=TITLES,
        text=st.just(""),
        links=st.lists(TITLES.map(lambda title: Link(0, 1, title)), max_size=4).map(tuple),
        redirect=st.none() | TITLES,
        is_disambiguation=st.booleans(),
        is_person=st.booleans(),
    ),
    min_size=1,
    max_size=12,
    unique_by=(lambda page: page.page_id, lambda page: page.title),
)


def expected(
    pages: list[Page], min_links: int, taken: list[str], removed: list[str]
) -> tuple[list[str], dict[str, int]]:
    """Titles of the entities in order, and the entity of each title that leads to one."""
    by_title = {page.title: page for page in pages}
    counts = Counter(link.target for page in pages for link in page.links)
    counts.subtract(taken)
    names = {*by_title, *counts, *(page.redirect for page in pages if page.redirect)}

    def end_of(title: str) -> str | None:
        for _ in range(MAX_REDIRECTS + 2):
            page = by_title.get(title)
            if page is None or page.redirect is None:
                return title
            title = page.redirect
        return None

    ends = {title: end for title in names if (end := end_of(title)) is not None}
    gone = {ends[title] for title in removed if title in ends}
    links = Counter[str]()
    for title, end in ends.items():
        links[end] += counts[title]
    articles = [
        page for page in pages if page.redirect is None and not page.is_disambiguation and page.title not in gone
    ]
    found = [page.title for page in sorted(articles, key=lambda page: page.page_id)]
    pageless = {end for end in ends.values() if end not in by_title and links[end] >= min_links > 0}
    found += sorted(pageless - gone, key=str.encode)
    return found, {title: found.index(end) for title, end in ends.items() if end in found}


@settings(max_examples=15, deadline=None)
@given(PAGES, st.integers(0, 3), st.integers(1, 6), st.sampled_from([100, 2500, 2**27]), st.data())
def test_entities_are_those_of_following_redirects_one_by_one(
    pages: list[Page], min_links: int, num_files: int, max_bytes: int, data: st.DataObject
) -> None:
    targets = [link.target for page in pages for link in page.links]
    taken = data.draw(st.lists(st.sampled_from(targets), max_size=2)) if targets else []
    removed = data.draw(st.lists(st.sampled_from([page.title for page in pages]), max_size=2))
    found, leads = expected(pages, min_links, taken, removed)
    options = {"min_links_without_page": min_links, "taken": Taken.of(hashes_of(taken)), "removed": removed}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resolving = resolve_pages(folder, pages, num_files=num_files, max_bytes=max_bytes, **options)
        if not found:
            with pytest.raises(DeepEdError, match="no article"), resolving:
                pass
            return
        with resolving as entities:
            assert [title for piece in entities.titles for title in piece.to_pylist()] == found
            assert entities.hashes.tolist() == hashes_of(found).tolist()
            page_ids = {page.title: page.page_id for page in pages if page.redirect is None}
            assert entities.page_ids.tolist() == [page_ids.get(title, -1) for title in found]
            persons = {page.title for page in pages if page.is_person}
            assert entities.is_person[: entities.num_pages].tolist() == [
                title in persons for title in found[: entities.num_pages]
            ]
        titles = read_strings(folder, "titles").to_pylist()
        assert dict(zip(titles, np.load(folder / "titles.entities.npy").tolist(), strict=True)) == leads
        assert len(titles) == entities.num_names


@pytest.mark.parametrize("num_files", [1, 3])
@pytest.mark.parametrize(("length", "leads"), [(MAX_REDIRECTS + 1, True), (MAX_REDIRECTS + 2, False)])
def test_a_chain_of_redirects_is_followed_so_far_and_no_further(
    tmp_path: Path, length: int, leads: bool, num_files: int
) -> None:
    chain = [Page(number, f"T{number}", "", redirect=f"T{number + 1}") for number in range(length)]
    with resolve_pages(tmp_path, [*chain, Page(99, f"T{length}", "")], num_files=num_files, max_bytes=100) as entities:
        assert entities.num_names == length + leads
