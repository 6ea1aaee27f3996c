"""No text of a stranger costs more than in proportion to its length: every step, every kind of text, four times as long.

Times are processor times, so that a busy machine does not matter. Quadratic work would take sixteen times as long.
"""

import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from fastapi.exceptions import RequestValidationError

from deeped_ray.corpus.priors import PriorCandidate, Senses
from deeped_ray.corpus.wikidump import DumpStats, RawPage, read_dump
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.embeddings.name_forms import acronym_of, fold, form_of, half_keys, initials_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.coreference import CoreferenceRule, share_person_candidates
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.link import link_work
from deeped_ray.serving.nif import nif_work
from deeped_ray.serving.rel import rel_work
from deeped_ray.serving.service import LinkingService, Reader
from deeped_ray.serving.turtle import read_turtle
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_mention, normalize_title, unit_spans, word_spans
from deeped_ray.types import DeepEdError, Document, Mention
from tests.conftest import write_dump

TIMES_AS_LONG = 4
LIMIT = 8
LEAST_S = 0.01
"""Less than this cannot be measured."""

UNITS = {
    "marks": "\u0300\u0316",
    "marks on letters": "a\u0300\u0316" + "\u0323" * 40,
    "Tibetan vowels, no marks but made of them": "\u0f73\u0f75\u0f81",
    "voiced sound marks": "\uff9e\uff9f",
    "one letter": "x",
    "capitals": "X",
    "capital and dot": "A.",
    "letters that grow when folded": "\ufdfa\u0390ß\u0130",
    "spaces": " ",
    "lines": "\n",
    "punctuation": ".,;:'",
    "apostrophes": "O'",
    "hyphens": "a-",
    "numbers": "1996 ",
    "names": "Montreal met Toronto in the Stanley Cup. ",
    "headlines": "MONTREAL MET TORONTO. ",
    "unknown names": "Zorblatt Quimby met Xanthe Vole. ",
    "one name": "Montreal ",
    "short names": "Boris Becker and Becker ",
    "Chinese": "北京大学",
    "Hebrew with points": "שָׁלוֹם ",
    "Devanagari": "नमस्ते ",
    "emoji": "👩‍👩‍👧",
    "half brackets": "((",
    "half tags": "<ref",
    "half links": "[[a|",
    "half templates": "{{a|",
    "half tables": "{|\n|",
    "half strings": '"',
    "backslashes": "\\",
    "ampersands": "&amp;",
}
WIKITEXT = {
    **UNITS,
    "nested links": "[[File:a|",
    "closed links": "[[a|b]]",
    "nested templates": "{{a}}{{",
    "comments": "<!-- -->",
    "half comments": "<!--",
    "references": "<ref>a</ref>",
    "half references": "<ref>a",
    "nowiki": "<nowiki>",
    "closing nowiki": "</nowiki>",
    "math": "<math>a",
    "galleries": "<gallery>\n",
    "tables": "{|\n|a\n|}\n",
    "quotes": "''",
    "headings": "=",
    "categories": "[[Category:a]]",
    "lists": "*",
    "closing braces": "}}",
    "closing brackets": "]]",
    "external links": "[http://a b]",
    "half external links": "[http://a ",
    "redirects": "#REDIRECT [[a]]\n",
    "lifetimes": "a (born 1 May 1900 – ",
}


DUMPS = {
    "pages": "<page><title>A</title><ns>0</ns><id>1</id><revision><text>a</text></revision></page>",
    "half pages": "<page>",
    "ends": "</page>",
    "titles": "<page><title>A</title>",
    "pages in pages": "<page><page></page>",
    "pages that do not parse": "<page><title>A</page>",
    "redirects": '<page><title>A</title><redirect title="B" /></page>',
    "half tags": "<page><a",
    "half comments": "<page><!--",
    "half sections": "<page><![CDATA[",
    "attributes": '<page a="b"></page>',
    "entities": "<page>&a;</page>",
    "spaces": " ",
}


def seconds(work: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    work(text)
    return time.process_time() - start


def check_growth(work: Callable[[str], object], unit: str, *, characters: int, most: int = 1_000_000) -> None:
    """Four times as long, again and again, until it can be measured or as long as anyone may send."""
    work(unit * (1000 // len(unit)))  # what is done once
    short = unit * (characters // len(unit))
    once = seconds(work, short)
    while len(short) * TIMES_AS_LONG <= most:
        long = short * TIMES_AS_LONG
        taken = seconds(work, long)
        if taken >= TIMES_AS_LONG * LEAST_S:
            once = max(min(once, seconds(work, short)), LEAST_S)
            for _ in range(3):  # a neighbour may have had the cache
                taken = taken if taken < LIMIT * once else min(taken, seconds(work, long))
            assert taken < LIMIT * once, f"{len(short):,} characters: {once:.3f} s, {len(long):,}: {taken:.3f} s"
            return
        short, once = long, taken


def tokens(text: str) -> None:
    normalize_title(text)
    normalize_mention(text)
    word_spans(text)
    unit_spans(text)


def names(text: str) -> None:
    list(half_keys(form_of(text).squeezed[:1000]))
    acronym_of(text)
    initials_of(text)
    fold(text)


def page(text: str) -> None:
    parse_page(RawPage(1, text, text, None))


@pytest.mark.parametrize("kind", UNITS)
def test_reading_text_is_linear(kind: str) -> None:
    check_growth(tokens, UNITS[kind], characters=20_000)
    check_growth(names, UNITS[kind], characters=2_000)


@pytest.mark.parametrize("kind", WIKITEXT)
def test_reading_a_page_is_linear(kind: str) -> None:
    check_growth(page, WIKITEXT[kind], characters=10_000)


@pytest.mark.parametrize("kind", DUMPS)
def test_reading_a_dump_is_linear(kind: str, tmp_path: Path) -> None:
    def read(content: str) -> None:
        dump = write_dump(tmp_path / "dump.xml", content)
        assert all(map(parse_page, read_dump(Location(dump), DumpStats())))

    check_growth(read, DUMPS[kind], characters=50_000, most=8_000_000)


@pytest.mark.parametrize("kind", UNITS)
def test_finding_and_linking_is_linear(linker: Linker, kind: str) -> None:
    check_growth(linker.link, UNITS[kind], characters=4_000)


@pytest.mark.parametrize("kind", UNITS)
def test_finding_all_that_can_be_linked_is_linear(linker: Linker, kind: str) -> None:
    check_growth(lambda text: linker.document(text, mentions="all"), UNITS[kind], characters=4_000)


@pytest.mark.parametrize("kind", UNITS)
def test_one_mention_of_any_length_is_linear(linker: Linker, kind: str) -> None:
    check_growth(lambda text: linker.link(text, [(0, len(text))]), UNITS[kind], characters=20_000)


@pytest.mark.parametrize("kind", UNITS)
def test_many_mentions_are_linear(linker: Linker, kind: str) -> None:
    def link(text: str) -> None:
        linker.link_batch([Document("", text, tuple(Mention(i, i + 5) for i in range(0, len(text) - 5, 10)))])

    check_growth(link, UNITS[kind], characters=1_500)


@pytest.fixture(scope="module")
def lookup(mini_kb: KnowledgeBase) -> Lookup:
    return Lookup(mini_kb)


@pytest.mark.parametrize("kind", UNITS)
def test_looking_up_is_linear(lookup: Lookup, kind: str) -> None:
    def look_up(text: str) -> None:
        lookup.mention(text)
        lookup.resembling(text)
        lookup.mix([], text)

    check_growth(look_up, UNITS[kind], characters=20_000)


def punctuated(*names: str, times: int) -> list[str]:
    """Names, each with so many kinds of punctuation behind it."""
    ends = ["".join(signs) for signs in itertools.islice(itertools.product("-.,;!", repeat=6), times)]
    return [f"{name}{end}" for end in ends for name in names]


def test_short_names_of_persons_are_linear_by_either_rule() -> None:
    queen, nobody = Senses.of([PriorCandidate(0, 1.0, 1.0)]), Senses.of([])

    def share(text: str, rule: CoreferenceRule) -> None:
        surfaces = punctuated("Queen Victoria", "Victoria", "Queen", times=len(text))
        candidates = [queen if surface.startswith("Queen V") else nobody for surface in surfaces]
        share_person_candidates(surfaces, candidates, np.ones(1, bool), rule)

    for rule in get_args(CoreferenceRule):
        check_growth(partial(share, rule=rule), "x", characters=1_000)


def test_names_of_persons_that_differ_only_in_punctuation_are_linear(linker: Linker) -> None:
    def share(text: str) -> None:
        names = [f"{name} " for name in punctuated("Abraham Lincoln", "Lincoln", times=len(text))]
        places = [0, *itertools.accumulate(map(len, names))]
        mentions = tuple(Mention(start, end - 1) for start, end in itertools.pairwise(places))
        linker.inputs.first_candidates(Document("", "".join(names), mentions))

    check_growth(share, "x", characters=800)


# -- the formats


@pytest.fixture(scope="module")
def service(mini_kb: KnowledgeBase) -> LinkingService:
    return LinkingService(AppArgs(kb=str(mini_kb.root)))


def answer(service: LinkingService, read: Reader, body: bytes) -> bytes | Exception:
    """What the threads of the queue do."""
    (reply,) = service._run([partial(read, body)], lambda expected_s=0.0: None)
    return reply


def spans(text: str, kind: str) -> list[list[int]]:
    """Start and length, as REL has them."""
    number = len(text) // 10
    return {
        "beside": [[10 * i, 5] for i in range(number)],
        "nested": [[i, 2 * (number - i)] for i in range(number)],
        "equal": [[0, 5]] * number,
        "crossing": [[i, 9] for i in range(number)],
        "backwards": [[10 * (number - i - 1), 5] for i in range(number)],
    }[kind]


@pytest.mark.parametrize("kind", ["beside", "nested", "equal", "crossing", "backwards"])
def test_spans_cost_no_more_than_in_proportion(service: LinkingService, kind: str) -> None:
    def ask(text: str) -> None:
        answer(service, rel_work, json.dumps({"text": text, "spans": spans(text, kind)}).encode())

    # nested ones take the square: the text is read once a layer, and the limit of characters counts all of them
    is_square = kind in ("nested", "crossing")
    check_growth(ask, "Montreal ", characters=500 if is_square else 3_000, most=2_000 if is_square else 100_000)


def nif(text: str, phrases: list[tuple[int, int]]) -> bytes:
    prefix = "@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .\n"
    context = f"<http://e/d#c> a nif:Context ; nif:isString {json.dumps(text, ensure_ascii=False)} .\n"
    blocks = (
        f'<http://e/d#{i}> a nif:Phrase ; nif:beginIndex "{a}" ; nif:endIndex "{b}" ; nif:referenceContext <http://e/d#c> .\n'
        for i, (a, b) in enumerate(phrases)
    )
    return (prefix + context + "".join(blocks)).encode()


@pytest.mark.parametrize(
    "kind", ["marks", "Tibetan vowels, no marks but made of them", "names", "emoji", "half strings"]
)
def test_nif_is_linear_in_its_text(service: LinkingService, kind: str) -> None:
    check_growth(
        lambda text: answer(service, partial(nif_work, confidence=True), nif(text, [])), UNITS[kind], characters=5_000
    )


def test_nif_is_linear_in_its_phrases(service: LinkingService) -> None:
    def ask(text: str) -> None:
        phrases = [(start, start + length) for start, length in spans(text, "beside")]
        answer(service, partial(nif_work, confidence=True), nif(text, phrases))

    check_growth(ask, "Montreal ", characters=2_000)


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "a", "spans": [%s]}',
        '[{"text": "a"}, %s]',
        "%s",
        '{"text": "%s"}',
        '{"spans": {"a": [%s]}}',
    ],
)
@pytest.mark.parametrize(
    "unit", ["[", "[0,1],", "[[],[]],", "{", '{"a":', '"', "\\u0300", '\\"', "1", "9" * 50, "null,", "NaN"]
)
def test_reading_a_body_is_linear(body: str, unit: str) -> None:
    def read(text: str) -> None:
        with suppress(DeepEdError, RequestValidationError):
            link_work((body % text).encode(), version={})

    check_growth(read, unit, characters=100_000)


def test_uris_in_full_are_bounded() -> None:
    turtle = "@prefix p: <http://e/" + "a" * 1_900 + "> .\n" + "p:a p:b p:c .\n" * 5_000
    with pytest.raises(ValueError, match=r"its URIs, written in full, have more than 20,000,000 characters"):
        read_turtle(turtle)


def test_all_overlapping_mentions_together_are_bounded() -> None:
    body = json.dumps({"text": "a" * 100_000, "spans": [[0, 100_000 - i] for i in range(9_000)]}).encode()
    with pytest.raises(DeepEdError, match="characters"):
        rel_work(body)


def test_every_kind_of_text_is_longer_than_nothing() -> None:
    assert all(itertools.chain(UNITS.values(), WIKITEXT.values()))
    kinds: list[Any] = list(UNITS)
    assert len(set(kinds)) == len(UNITS)
