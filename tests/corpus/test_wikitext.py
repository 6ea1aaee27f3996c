import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.corpus.wikidump import RawPage
from deeped_ray.corpus.wikitext import parse_page, parse_wikitext


def parse(wikitext: str) -> tuple[str, list[tuple[str, str]]]:
    text, links = parse_wikitext(wikitext)
    return text, [(text[link.start : link.end], link.target) for link in links]


@pytest.mark.parametrize(
    ("wikitext", "text", "links"),
    [
        ("a [[Dog]] b", "a Dog b", [("Dog", "Dog")]),
        ("[[Dog|the dog]]", "the dog", [("the dog", "Dog")]),
        ("two [[dog]]s", "two dogs", [("dogs", "Dog")]),
        ("[[Apple#History|old apples]]", "old apples", [("old apples", "Apple")]),
        ("[[Apple (fruit)|]]", "Apple", [("Apple", "Apple (fruit)")]),
        ("[[Caf%C3%A9_Paris]]", "Caf%C3%A9_Paris", [("Caf%C3%A9_Paris", "Café Paris")]),
        ("'''Bold''' and ''slanted''", "Bold and slanted", []),
        ("[[Dog|the ''good'' dog]]", "the good dog", [("the good dog", "Dog")]),
        ("x{{cite|a={{b}}|c=[[D]]}}y", "xy", []),
        ("x{|\n|[[cell]]\n|}y", "xy", []),
        ("x<ref name='a'>[[D]]</ref>y<ref name='a' />z", "xyz", []),
        ("x<!-- [[D]] -->y", "xy", []),
        ("x<math>a [[b]]</math>y", "xy", []),
        ("a &ndash; b &amp; c", "a – b & c", []),
        ("[[File:A.jpg|thumb|A [[dog]] runs]]x", "x", []),
        ("[[Category:Dogs]]x[[fr:Chien]]y", "xy", []),
        ("[http://example.org a page] z", "a page z", []),
        ("== Head ==\n* item\n# next", " Head \n item\n next", []),
        ("[[never closed", "[[never closed", []),
        ("{{never closed [[Dog]]", "{{never closed Dog", [("Dog", "Dog")]),
        ("stray ]] and }} and | stay", "stray ]] and }} and | stay", []),
        ("{{a [[b}}c", "c", []),
    ],
)
def test_markup(wikitext: str, text: str, links: list[tuple[str, str]]) -> None:
    assert parse(wikitext) == (text, links)


MARKUP = st.lists(
    st.sampled_from(
        [
            "[[",
            "]]",
            "{{",
            "}}",
            "{|",
            "|}",
            "|",
            "''",
            "<ref>",
            "</ref>",
            "<!--",
            "-->",
            "[http://x ",
            "]",
            "\n",
            "=",
            "word",
            "Ünï",
            " ",
        ]
    )
)


@given(MARKUP)
def test_any_mixture_of_markup_parses_with_links_inside_the_text(pieces: list[str]) -> None:
    text, links = parse_wikitext("".join(pieces))
    assert all(0 <= link.start < link.end <= len(text) for link in links)


@given(st.text(alphabet=st.characters(whitelist_categories=("L", "N", "Zs")), max_size=200))
def test_prose_without_markup_is_kept_as_it_is(prose: str) -> None:
    assert parse_wikitext(prose) == (prose, [])


@pytest.mark.parametrize("opening", ["[[", "{{", "{|", "[http://x ", "]]", "}}"])
def test_unbalanced_brackets_take_linear_time(opening: str) -> None:
    def seconds(repeats: int) -> float:
        start = time.perf_counter()
        parse_wikitext(opening * repeats)
        return time.perf_counter() - start

    assert seconds(40_000) < 25 * max(seconds(4_000), 0.001)


def test_a_redirect_is_told_from_markup_where_the_dump_does_not_say() -> None:
    page = parse_page(RawPage(1, "Tart", "#REDIRECT [[apple pie#Kinds]]", None))
    assert page.redirect == "Apple pie"


@pytest.mark.parametrize(
    "marker",
    ["{{disambiguation}}", "{{Disambig}}", "{{hndis|name=X}}", "{{geographic disambiguation}}", "__DISAMBIG__"],
)
def test_disambiguation_pages_are_told_from_markup(marker: str) -> None:
    assert parse_page(RawPage(1, "X", f"X may be [[Y]]. {marker}", None)).is_disambiguation
    assert not parse_page(RawPage(1, "X", "X is {{cite}} a Y.", None)).is_disambiguation


def test_links_of_a_page_to_itself_are_dropped() -> None:
    page = parse_page(RawPage(1, "Dog", "A [[dog]] chases a [[cat]].", None))
    assert [link.target for link in page.links] == ["Cat"]
