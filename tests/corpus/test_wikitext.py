import html
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

import mwparserfromhell
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.corpus.wikidump import DumpStats, RawPage, SiteInfo, read_dump
from deeped_ray.corpus.wikitext import _is_hidden, is_in_other_namespace, parse_page, parse_wikitext
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title

PROSE_TAGS = {
    "i",
    "b",
    "small",
    "sub",
    "sup",
    "big",
    "u",
    "li",
    "dt",
    "dd",
    "div",
    "span",
    "center",
    "blockquote",
    "p",
    "em",
    "strong",
}


def parse(wikitext: str) -> tuple[str, list[tuple[str, str]]]:
    text, links = parse_wikitext(wikitext)
    return text, [(text[link.start : link.end], link.target) for link in links]


@pytest.mark.parametrize(
    ("wikitext", "text", "links"),
    [
        ("a [[Dog]] b", "a Dog b", [("Dog", "Dog")]),
        ("[[Dog|the dog]]", "the dog", [("the dog", "Dog")]),
        ("two [[dog]]s", "two dogs", [("dogs", "Dog")]),
        ("[[パリ]]の市場、[[巴黎]]的市场", "パリの市場、巴黎的市场", [("パリ", "パリ"), ("巴黎", "巴黎")]),
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
        ("[[File:A.jpg|thumb|A [[dog]] runs]]x", "\nA dog runs\nx", [("dog", "Dog")]),
        ("[[File:A.jpg|thumb|plain]]x", "x", []),
        ("[[wikt:apple|apple]]s [[:fr:Pomme|pomme]]", "apples pomme", []),
        ("[[CSI: Miami]]", "CSI: Miami", [("CSI: Miami", "CSI: Miami")]),
        ("a<BR />b", "a\nb", []),
        ("<nowiki>[[x]] ''y''</nowiki>", "[[x]] ''y''", []),
        ("<ref>never closed [[Dog]]", "never closed Dog", [("Dog", "Dog")]),
        ("[[Category:Dogs]]x[[fr:Chien]]y", "xy", []),
        ("[http://example.org a page] z", "a page z", []),
        ("== Head ==\n* item\n# next", " Head \n item\n next", []),
        ("[[never closed", "[[never closed", []),
        ("{{never closed [[Dog]]", "{{never closed Dog", [("Dog", "Dog")]),
        ("stray ]] and }} and | stay", "stray ]] and }} and | stay", []),
        ("{{a [[b}}c", "c", []),
        ("x{{a|}}y{{b|{{c|}}}}z", "xyz", []),
        ("x{{box|\n{|\n| [[cell]]\n|}}}y", "xy", []),
        ("x{|\n| {{never closed\n|}y", "xy", []),
        ("x{{a|{| never closed}}y", "xy", []),
        ("[[[Dog]]]", "[Dog]", [("Dog", "Dog")]),
        ("[[Dog|the [good] dog]]s", "the [good] dogs", [("the [good] dogs", "Dog")]),
        ("[[Dog|a|b]]", "a|b", [("a|b", "Dog")]),
        ("[[not a file [[Dog]] at all]]", "[[not a file Dog at all]]", [("Dog", "Dog")]),
        ("[[File:A.jpg|[[B]]|see [[dog]]s]]x", "\nsee dogs\nx", [("dogs", "Dog")]),
        ("[[File:A.jpg|thumb|[[dog]]", "[[File:A.jpg|thumb|dog", [("dog", "Dog")]),
        ("[http://example.org a [[dog]] page][ftp://x]", "a dog page", [("dog", "Dog")]),
        ("[http://example.org never closed", "[http://example.org never closed", []),
        ("[[A&amp;B|a &#91;&#91;b&#93;&#93;]]", "a [[b]]", [("a [[b]]", "A&B")]),
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


MEGABYTE = 2**20


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "[[",
            "]]",
            "{{",
            "{|",
            "|}}",
            "[[a|",
            "{{ ",
            "[[[",
            "[[File:a|",
            "[[a]b",
            "<ref>",
            "<ref",
            "<!--",
            "<a ",
            "&",
        ),
        *("'''", "= ", "\n*", "__A", "[http://x ", "[//x [[a]", "#"),
    ],
)
@pytest.mark.parametrize("ending", ["", "]]"])
def test_a_megabyte_of_unbalanced_markup_takes_less_than_a_second(piece: str, ending: str) -> None:
    repeats = MEGABYTE // len(piece + ending)
    assert seconds_to_parse(piece * repeats + ending * repeats) < 1


@pytest.mark.parametrize("opening", ["[[", "[[a:", "[//", "[// ", "<a", "a=", "__A", "#a", "|}"])
@pytest.mark.parametrize("run", [" ", "A", "=", "}", "]a"])
def test_a_megabyte_after_an_opening_takes_less_than_a_second(opening: str, run: str) -> None:
    assert seconds_to_parse(opening + run * (MEGABYTE // len(run)) + "x") < 1


def seconds_to_parse(wikitext: str) -> float:
    start = time.process_time()
    parse_page(RawPage(1, "X", wikitext, None))
    return time.process_time() - start


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


@pytest.mark.parametrize(
    ("title", "text"),
    [
        *(
            ("Mercurio (desambiguación)", ""),
            ("メルクリウス (曖昧さ回避)", ""),
            ("מרקורי (פירושונים)", ""),
            ("Cıva (anlam ayrımı)", ""),
        ),
        *(
            ("水星", "{{消歧义}}"),
            ("Меркурий", "{{неоднозначность}}"),
            ("Kvikksølv", "{{Peker}}"),
            ("Ртуть", "{{Неоднозначність}}"),
        ),
        *(
            ("عطارد", "{{توضيح}}"),
            ("Thủy", "{{Trang định hướng}}"),
            ("बुध", "{{बहुविकल्पी शब्द}}"),
            ("수성", "{{동음이의}}"),
        ),
    ],
)
def test_disambiguation_pages_are_told_in_the_larger_languages(title: str, text: str) -> None:
    assert parse_page(RawPage(1, title, f"* [[X]]\n{text}", None)).is_disambiguation
    assert not parse_page(RawPage(1, "Mercurio (planeta)", "* [[X]]", None)).is_disambiguation


@pytest.mark.parametrize(
    "text",
    [
        *("#REDIRECT [[Y]]", "#redirect:[[Y]]", "#WEITERLEITUNG [[Y]]", "#REDIRECTION[[Y]]", "#перенаправление [[Y]]"),
        *("#転送 [[Y]]", "#重定向 [[Y]]", "#넘겨주기 [[Y]]", "#تحويل [[Y]]", "#تغییر مسیر [[Y]]", "#הפניה [[Y]]"),
    ],
)
def test_redirects_are_told_in_any_language(text: str) -> None:
    assert parse_page(RawPage(1, "X", text, None)).redirect == "Y"
    assert parse_page(RawPage(1, "X", text.replace("#", "# "), None)).redirect is None


@pytest.mark.parametrize(
    "template", ["{{disambiguation needed|date=2020}}", "{{Infobox surname}}", "{{About|the fruit}}"]
)
def test_articles_that_only_mention_ambiguity_stay_articles(template: str) -> None:
    assert not parse_page(RawPage(1, "X", f"X {template} is a Y.", None)).is_disambiguation


@pytest.mark.parametrize(
    "target",
    [
        "Sh:Jabuka",
        "nah:Tepetl",
        "Nrm:Poumme",
        "be-x-old:Яблык",
        "W:Apple",
        "Immagine:Mela.jpg",
        "分類:果物",
        "カテゴリ:果物",
    ],
)
def test_links_to_other_wikis_and_former_namespaces_are_no_links(target: str) -> None:
    assert is_in_other_namespace(target)


@pytest.mark.parametrize("target", ["CSI: Miami", "ISO 3166-2:NZ", "2012: Doomsday", "Apple", ":Apple", "Re:Zero"])
def test_titles_with_a_colon_stay_links(target: str) -> None:
    assert not is_in_other_namespace(target)


def test_another_languages_names_are_understood() -> None:
    site = SiteInfo("de", frozenset({"datei", "kategorie"}))
    page = parse_page(RawPage(1, "Apfel", "Ein [[Obst]]. [[Datei:A.jpg|mini]] [[Kategorie:Obst]]", None), site)
    assert [link.target for link in page.links] == ["Obst"]
    assert parse_page(RawPage(2, "Apfel (Begriffsklärung)", "* [[Apfel]]", None), site).is_disambiguation
    assert parse_page(RawPage(3, "Pomme", "#WEITERLEITUNG [[Apfel]]", None), site).redirect == "Apfel"


def test_links_of_a_page_to_itself_are_dropped() -> None:
    page = parse_page(RawPage(1, "Dog", "A [[dog]] chases a [[cat]].", None))
    assert [link.target for link in page.links] == ["Cat"]


@pytest.mark.data
def test_links_in_prose_agree_with_mwparserfromhell(shared_data: Path) -> None:
    """At least 99% of the links that mwparserfromhell finds in prose, with the same target and the same text."""
    found = total = 0
    for dump in sorted((shared_data / "wiki" / "raw").iterdir()):
        for raw in islice(read_dump(Location(dump), DumpStats()), 120):
            if raw.wikitext.lstrip().startswith("#"):
                continue
            text, links = parse_wikitext(raw.wikitext)
            ours = Counter((link.target, " ".join(text[link.start : link.end].split())) for link in links)
            for target, anchor in prose_links(raw.wikitext):
                total += 1
                # ours hold the trail as well: [[dog]]s
                match = next(
                    (key for key in ours if key[0] == target and key[1].startswith(anchor) and ours[key] > 0), None
                )
                if match:
                    found += 1
                    ours[match] -= 1
    assert total > 5000
    assert found / total >= 0.99


def prose_links(wikitext: str) -> Iterator[tuple[str, str]]:
    """(target, text) of links outside templates, tables and references, by mwparserfromhell."""
    nodes = list(reversed(mwparserfromhell.parse(wikitext).nodes))
    while nodes:
        node = nodes.pop()
        if isinstance(node, mwparserfromhell.nodes.Wikilink):
            title = html.unescape(str(node.title)).strip()
            target = normalize_title(unquote(title.partition("#")[0].lstrip(":")))
            if target and not (
                ":" in title and _is_hidden(title.lstrip(":").partition(":")[0].strip().lower(), frozenset())
            ):
                shown = node.text.strip_code() if node.text is not None else title
                yield target, " ".join(html.unescape(shown).split())
        elif isinstance(node, mwparserfromhell.nodes.Heading):
            nodes.extend(reversed(node.title.nodes))
        elif (
            isinstance(node, mwparserfromhell.nodes.Tag)
            and str(node.tag).lower() in PROSE_TAGS
            and node.contents is not None
        ):
            nodes.extend(reversed(node.contents.nodes))
