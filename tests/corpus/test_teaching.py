"""Articles that teach: which, how they are cut, and that nothing they say is counted."""

from pathlib import Path

import pytest

from deeped_ray.corpus import teaching
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.cooccurrence import GRAPH, LINK_WORDS, WordCounts
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.corpus.teaching import Choice, Place, documents_of, is_whole, key_of, repeats
from deeped_ray.types import DeepEdError, Link, Page
from tests.conftest import ingest_pages, page_xml


def page(text: str, *links: tuple[str, str]) -> Page:
    """With a link from the first place of each name to a title."""
    found = [Link(text.index(name), text.index(name) + len(name), title) for name, title in links]
    return Page(1, "Article", text, tuple(found))


def places(text: str, *links: tuple[str, str]) -> list[tuple[str, str, bool]]:
    return [
        (document["text"][each["start"] : each["end"]], each["target"], each["is_link"])
        for document in documents_of(page(text, *links))
        for each in document["mentions"]
    ]


def test_a_name_that_is_linked_once_is_a_mention_wherever_it_stands_again() -> None:
    text = "Paris lies on the Seine. Paris is old; Parisians know it."
    assert places(text, ("Paris", "Paris, Texas"), ("Seine", "Seine")) == [
        ("Paris", "Paris, Texas", True),
        ("Seine", "Seine", True),
        ("Paris", "Paris, Texas", False),
    ]


def test_a_repeated_name_is_not_part_of_a_longer_one() -> None:
    text = "New York City is in New York. New York City again, and New York."
    found = places(text, ("New York City", "NYC"), ("New York. ", "x"))
    assert ("New York City", "NYC", False) in found
    links = [Place(0, 13, "NYC", True), Place(20, 28, "State", True)]
    assert [text[each.start : each.end] for each in repeats(text, links)] == ["New York City", "New York"]


def test_a_name_with_two_targets_and_a_common_word_are_not_repeated() -> None:
    text = "Bush met Bush on a farm; Bush left the farm."
    links = [Place(0, 4, "Elder", True), Place(9, 13, "Younger", True), Place(19, 23, "Farm", True)]
    assert list(repeats(text, links)) == []


@pytest.mark.parametrize(
    ("text", "is_one"), [("xBonn", False), ("Bonn's", True), ("Bonner", False), ("東京都Bonn", True)]
)
def test_words_end_where_letters_with_case_end(text: str, is_one: bool) -> None:
    start = text.index("Bonn")
    assert is_whole(text, start, start + 4) == is_one


def test_an_article_is_cut_between_lines_into_documents_of_few_mentions() -> None:
    lines = [f"Name{line} meets nobody here." for line in range(100)]
    text = "\n".join(lines)
    found = list(documents_of(page(text, *((f"Name{line} ", "T") for line in range(100)))))
    assert [len(document["mentions"]) for document in found] == [40, 40, 20]
    assert "".join(document["text"] for document in found) == text


def test_a_long_line_is_cut_between_mentions() -> None:
    text = " ".join(f"Name{number}x" for number in range(90))
    found = list(documents_of(page(text, *((f"Name{number}x", "T") for number in range(90)))))
    assert [len(document["mentions"]) for document in found] == [40, 40, 10]
    for document in found:
        assert all(document["text"][each["start"] :].startswith("Name") for each in document["mentions"])


def test_the_choice_takes_lowest_keys_first_and_keeps_to_the_limit() -> None:
    articles = [(30, 5), (10, 3), (20, 4)]
    assert teaching.cut(articles, Choice(100), num_links=7) == Choice(30)
    assert teaching.cut(articles, Choice(100), num_links=6) == Choice(20)
    assert teaching.cut(articles, Choice(100), num_links=12) == Choice(100)
    assert Choice(0).are_chosen(["a"]).tolist() == [False]
    assert Choice(2**64).are_chosen(["a"]).tolist() == [True]
    assert Choice(key_of("a") + 1).are_chosen(["a"]).tolist() == [True]


WIKI = "".join(
    page_xml(
        f"Town {number}",
        f"Town {number} lies near [[Town {(number + 1) % 40}|Next]] and [[Rare {number}]].",
        page_id=number,
    )
    for number in range(40)
)


def test_nothing_that_a_teaching_article_links_is_counted(local_ray_session: None, tmp_path: Path) -> None:
    corpus = ingest_pages(tmp_path, WIKI, teaching_links=20, max_teaching_share=1.0, min_links_without_page=1).open(
        "corpus"
    )
    taught = [*teaching.read(corpus, "train"), *teaching.read(corpus, "dev")]
    articles = {document.name.rpartition(",")[0] for document in taught}
    assert corpus.summary()["teaching_documents"] == len(taught) == len(articles) == 10
    assert corpus.summary()["followed_links"] == 2 * 40 - 20
    mentions, catalogue = MentionTable(corpus), Catalogue(corpus)
    assert sum(each.support for each in mentions.candidates("Next")) == 30
    assert int(catalogue.num_links.sum()) == 60
    for article in articles:
        entity, rare = catalogue.require(article), f"Rare {article.removeprefix('Town ')}"
        assert len(WordCounts(corpus, GRAPH).row(entity)[0]) == 0
        # linked from there alone: without that article it would be no entity
        assert catalogue.find(rare) is None
        assert mentions.candidates(rare) == []
    assert int(WordCounts(corpus, LINK_WORDS).counts.sum()) > 0
    golds = [mention.gold for document in taught for mention in document.mentions]
    assert len(golds) == 20


def test_no_article_teaches_if_none_is_asked_for_and_all_do_if_all_may(local_ray_session: None, tmp_path: Path) -> None:
    assert teaching.read(ingest_pages(tmp_path / "a", WIKI, teaching_links=0).open("corpus"), "train") == []
    corpus = ingest_pages(tmp_path / "b", WIKI, teaching_links=1000, max_teaching_share=1.0).open("corpus")
    assert corpus.summary()["followed_links"] == 0
    assert corpus.summary()["teaching_documents"] == 40


def test_a_share_outside_0_to_1_is_refused() -> None:
    with pytest.raises(DeepEdError, match="`max_teaching_share` must lie between 0 and 1, not be 2"):
        CorpusConfig(max_teaching_share=2)
