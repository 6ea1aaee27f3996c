import builtins
import random
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdflib import RDF, XSD, Graph, Literal, Namespace, URIRef

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.serving.nif import NIF, NifDocument, NifError, read_nif, write_nif
from deeped_ray.serving.service import LinkingService
from deeped_ray.types import Candidate, Prediction

ITSRDF = Namespace("http://www.w3.org/2005/11/its/rdf#")
DOCUMENT = "http://example.org/text"
PREFIXES = f"""@prefix nif: <{NIF}> .
@prefix itsrdf: <{ITSRDF}> .
@prefix xsd: <{XSD}> .
"""
A2KB = f"""{PREFIXES}
<{DOCUMENT}#char=0,24> a nif:Context, nif:String, nif:RFC5147String ;
    nif:isString "Ada went to see \\"Paris\\"."^^xsd:string ;
    nif:beginIndex "0"^^xsd:nonNegativeInteger ;
    nif:endIndex "24"^^xsd:nonNegativeInteger .
"""
D2KB = f"""{A2KB}
<http://example.org/first> a nif:Phrase ;
    nif:anchorOf "Ada" ; nif:beginIndex "0"^^xsd:int ; nif:endIndex 3 ;
    nif:referenceContext <{DOCUMENT}#char=0,24> .
<http://example.org/second> a nif:RFC5147String, nif:String ;
    nif:anchorOf "Paris"@en ; nif:beginIndex "17" ; nif:endIndex "22"^^xsd:nonNegativeInteger ;
    nif:referenceContext <{DOCUMENT}#char=0,24> ;
    itsrdf:taIdentRef <http://dbpedia.org/resource/Paris,_Texas> .
"""


def predicted(text: str, start: int, end: int, title: str | None) -> Prediction:
    if title is None:
        return Prediction(start, end, text[start:end], reason="no entity is known by this name")
    url = f"http://dbpedia.org/resource/{title.replace(' ', '_')}"
    entity = Candidate(title, 7, url, prior=0.5, local=0.0, coherence=0.0, score=1.0, probability=0.75)
    return Prediction(start, end, text[start:end], (entity,))


def answered(document: NifDocument, *predictions: Prediction, confidence: bool = False) -> Graph:
    return Graph().parse(
        data=b"".join(write_nif(document, [list(predictions)], confidence=confidence)), format="turtle"
    )


def request(text: str, *spans: tuple[int, int], end: int | None = None, anchors: list[str] | None = None) -> str:
    """As rdflib writes it, with offsets and anchors as given."""
    graph = Graph()
    context = URIRef(f"{DOCUMENT}#char=0,{len(text) if end is None else end}")
    graph.add((context, RDF.type, NIF.Context))
    graph.add((context, NIF.isString, Literal(text)))
    graph.add((context, NIF.endIndex, Literal(len(text) if end is None else end)))
    for (start, stop), anchor in zip(spans, anchors or [text[start:stop] for start, stop in spans], strict=True):
        phrase = URIRef(f"{DOCUMENT}#char={start},{stop}")
        about = {RDF.type: NIF.Phrase, NIF.referenceContext: context, NIF.anchorOf: Literal(anchor)}
        about |= {NIF.beginIndex: Literal(start), NIF.endIndex: Literal(stop)}
        for predicate, value in about.items():
            graph.add((phrase, predicate, value))
    return graph.serialize(format="turtle")


def places(answer: Graph) -> set[tuple[str, int, int]]:
    return {
        (str(node), int(str(answer.value(node, NIF.beginIndex))), int(str(answer.value(node, NIF.endIndex))))
        for node in answer.subjects(RDF.type, NIF.Phrase)
    }


def test_without_phrases_mentions_are_to_be_found() -> None:
    document = read_nif(A2KB)
    assert (document.uri, document.text) == (f"{DOCUMENT}#char=0,24", 'Ada went to see "Paris".')
    assert document.spans is None


def test_phrases_are_spans_whatever_the_type_of_their_offsets() -> None:
    assert read_nif(D2KB.encode()).spans == [(0, 3), (17, 22)]


def test_found_mentions_get_uris_by_place() -> None:
    document = read_nif(A2KB)
    answer = answered(document, predicted(document.text, 17, 22, "Paris"), predicted(document.text, 0, 3, None))
    phrase = URIRef(f"{DOCUMENT}#char=17,22")
    assert places(answer) == {(str(phrase), 17, 22)}
    assert answer.value(phrase, ITSRDF.taIdentRef) == URIRef("http://dbpedia.org/resource/Paris")
    assert answer.value(phrase, NIF.anchorOf) == Literal("Paris")
    assert answer.value(phrase, NIF.referenceContext) == URIRef(document.uri)
    assert answer.value(URIRef(document.uri), NIF.isString) == Literal(document.text)


def test_given_phrases_keep_their_uris_and_gold_is_not_answered() -> None:
    document = read_nif(D2KB)
    answer = answered(document, predicted(document.text, 0, 3, "Ada Lovelace"), predicted(document.text, 17, 22, None))
    assert places(answer) == {("http://example.org/first", 0, 3), ("http://example.org/second", 17, 22)}
    uri = URIRef("http://dbpedia.org/resource/Ada_Lovelace")
    assert list(answer.subject_objects(ITSRDF.taIdentRef)) == [(URIRef("http://example.org/first"), uri)]


def test_confidence_is_told_on_demand_only() -> None:
    document = read_nif(A2KB)
    prediction = predicted(document.text, 0, 3, "Ada Lovelace")
    assert not list(answered(document, prediction).objects(None, ITSRDF.taConfidence))
    told = answered(document, prediction, confidence=True).objects(None, ITSRDF.taConfidence)
    assert [value.toPython() for value in told if isinstance(value, Literal)] == [0.75]


def test_entities_are_named_by_wikidata_if_asked_for_and_known() -> None:
    document = read_nif(A2KB)
    ada, paris = predicted(document.text, 0, 3, "Ada Lovelace"), predicted(document.text, 17, 22, "Paris")
    ada = replace(ada, candidates=(replace(ada.candidates[0], wikidata="Q7259"),))
    found = Graph().parse(data=b"".join(write_nif(document, [[ada, paris]], identifier="wikidata")), format="turtle")
    named = {str(entity) for entity in found.objects(None, ITSRDF.taIdentRef)}
    assert named == {"http://www.wikidata.org/entity/Q7259", "http://dbpedia.org/resource/Paris"}


def test_a_span_given_twice_is_linked_once_and_answered_under_both_uris() -> None:
    first = D2KB[D2KB.index("<http://example.org/first>") : D2KB.index("<http://example.org/second>")]
    document = read_nif(A2KB + first + first.replace("first", "again"))
    assert document.spans == [(0, 3)]
    answer = answered(document, predicted(document.text, 0, 3, "Ada Lovelace"))
    assert len(set(answer.subjects(ITSRDF.taIdentRef))) == 2


def test_a_mention_may_be_the_whole_text() -> None:
    document = read_nif(request("Paris", (0, 5)))
    assert document.phrases[0].uri == document.uri
    assert document.spans == [(0, 5)]
    assert places(answered(document, predicted("Paris", 0, 5, "Paris"))) == {(document.uri, 0, 5)}


def test_words_and_sentences_are_no_mentions() -> None:
    assert read_nif(D2KB.replace("second> a", "second> a nif:Word,")).spans == [(0, 3)]


def test_odd_entity_uris_do_not_break_the_answer() -> None:
    document = read_nif(A2KB)
    answer = answered(document, predicted(document.text, 0, 3, '"A> <b>\\n'))
    assert str(next(answer.objects(None, ITSRDF.taIdentRef))).endswith("/%22A%3E_%3Cb%3E%5Cn")


TEXT = "🦄 Ze\u0301ro met 🇫🇷 Ada"


def test_characters_are_code_points() -> None:
    document = read_nif(request(TEXT, (2, 7), (15, 18)))
    assert [TEXT[start:end] for start, end in document.spans or []] == ["Ze\u0301ro", "Ada"]
    answer = answered(document, *(predicted(TEXT, *span, "X") for span in document.spans or []))
    assert places(answer) == {(f"{DOCUMENT}#char=2,7", 2, 7), (f"{DOCUMENT}#char=15,18", 15, 18)}


def test_utf16_offsets_are_told_by_the_anchors_and_answered_alike() -> None:
    document = read_nif(request(TEXT, (3, 8), (18, 21), anchors=["Ze\u0301ro", "Ada"]))
    assert document.spans == [(2, 7), (15, 18)]
    answer = answered(document, *(predicted(TEXT, *span, "X") for span in document.spans or []))
    assert places(answer) == {(f"{DOCUMENT}#char=3,8", 3, 8), (f"{DOCUMENT}#char=18,21", 18, 21)}


def test_utf16_offsets_are_told_by_the_end_of_a_text_without_phrases() -> None:
    document = read_nif(request(TEXT, end=21))
    assert places(answered(document, predicted(TEXT, 15, 18, "Ada"))) == {(f"{DOCUMENT}#char=18,21", 18, 21)}


def test_phrases_are_either_all_in_characters_or_all_in_utf16() -> None:
    with pytest.raises(NifError, match=r"goes from 18 to 21, but the text has 18 characters"):
        read_nif(request(TEXT, (2, 7), (18, 21), anchors=["Ze\u0301ro", "Ada"]))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nif:endIndex 3", "nif:endIndex [", "line 12: "),
        (" a nif:Context,", " a", "0 resources of type nif:Context"),
        ("@@", "<http://example.org/2> a nif:Context .", "2 resources of type nif:Context"),
        ("nif:isString", "nif:isSentence", "has 0 texts"),
        ("@@", f'<{DOCUMENT}#char=0,24> nif:isString "" .', "has 2 texts"),
        ('\\"Paris\\"', "\\uD83D", "half of a surrogate pair"),
        (f"<{DOCUMENT}#char=0,24>", "_:text", "has no URI"),
        ("<http://example.org/first>", "[]", "has no URI"),
        ("<http://example.org/first>", "_:first", "has no URI"),
        ("<http://example.org/first>", "<first>", "relative URI"),
        ("<http://example.org/first>", "<a:b\\u0020c>", "<a:b c> is not a full URI"),
        ("@@", "@base <http://example.org/> .", "all URIs in full"),
        ("nif:endIndex 3 ;", "", r"has \[\] for nif:endIndex"),
        ("nif:endIndex 3", "nif:endIndex 3, 4", r"has \[.*\] for nif:endIndex"),
        ("nif:endIndex 3", 'nif:endIndex "three"', "three"),
        ("nif:endIndex 3", "nif:endIndex -3", "-3"),
        ("nif:endIndex 3", "nif:endIndex " + "3" * 4000, "333"),
        ("nif:endIndex 3", "nif:endIndex " + "3" * 5000, "line 11: Exceeds the limit"),
        ("nif:endIndex 3", "nif:endIndex 25", "goes from 0 to 25, but the text has 24 characters"),
        ("nif:endIndex 3", "nif:endIndex 4", "but the text has 'Ada ' there, not 'Ada'"),
        ("nif:anchorOf", 'nif:anchorOf "Ida",', "there, not 'Ada'|there, not 'Ida'"),
        ("nif:referenceContext", "nif:sentence", "Give it nif:referenceContext"),
        ("nif:endIndex 3", 'nif:endIndex "3', "line 11: the string has no end"),
        ('"Ada"', '"A\\da"', r"line 11: \\d is not an escape"),
        ('"Ada"', '"\\UFFFFFFFF"', "line 11"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(old: str, new: str, problem: str) -> None:
    bad = f"{D2KB}@@".replace(old, new).replace("@@", "")
    with pytest.raises(NifError, match=problem):
        read_nif(bad)


@pytest.mark.parametrize(
    "turtle",
    [
        "[" * 100_000,
        "<a:b> <a:c> " + "(" * 100_000,
        "<a:b> <a:c> " + "[ <a:d> " * 100_000,
        '<a:b> <a:c> "1E+999999999"^^<http://www.w3.org/2001/XMLSchema#decimal> .',
        f"<a:b> <a:c> <{'../' * 300_000}> .",
        f"<a:b> <a:c> <a:{'c' * 300_000}> .",
        f"{PREFIXES} <a:b> a nif:Context ; nif:isString '{'t' * 1_000_001}' .",
        " " * 8_000_001,
    ],
    ids=lambda turtle: turtle[:20],
)
@pytest.mark.timeout(60)
def test_greedy_requests_are_refused(turtle: str) -> None:
    with pytest.raises(NifError):
        read_nif(turtle)


def test_statements_and_phrases_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeped_ray.serving.nif.MAX_SPANS", 2)
    with pytest.raises(NifError, match=r"3 phrases. Send at most 2"):
        read_nif(request("Ada", (0, 1), (1, 2), (2, 3)))
    monkeypatch.setattr("deeped_ray.serving.turtle.MAX_STATEMENTS", 2)
    with pytest.raises(NifError, match="more than 2 statements"):
        read_nif("<a:b> <a:c> 1, 2, 3 .")


@pytest.mark.timeout(60)
def test_long_texts_are_read_in_time() -> None:
    text = 'é\n"\\🦄' * 40_000
    escaped = "".join(f"\\U{ord(character):08X}" for character in text[:60_000])
    assert read_nif(request(text, (3, 5))).text == text
    assert read_nif(f'{PREFIXES} <a:b> a nif:Context ; nif:isString "{escaped}" .').text == text[:60_000]


def test_a_request_opens_neither_files_nor_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"opened {args}")

    read_nif(A2KB)  # rdflib loads its store with the first
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    imports = (
        "<http://example.org/> <http://www.w3.org/2002/07/owl#imports> <file:///etc/hosts>, <http://example.org/x> ."
    )
    assert read_nif(A2KB + "@prefix x: <http://example.org/y#> . x:a x:b x:c ." + imports).text


def outcome(turtle: bytes | str) -> str:
    try:
        return read_nif(turtle).uri
    except NifError as error:
        return str(error)


@given(st.binary())
def test_any_bytes_are_refused_in_one_line(data: bytes) -> None:
    assert len(outcome(data).splitlines()) == 1


@given(
    st.integers(0, len(D2KB) - 1),
    st.integers(0, 40),
    st.lists(st.sampled_from([*"\"'\\<>[](){};,.@^:#!?=_ \n\r\tau0é🦄\0\ud800", "nif:", "\\ud800", "\u2028", "://"])),
)
@settings(max_examples=500)
def test_damaged_requests_are_answered_or_refused_in_one_line(start: int, length: int, noise: list[str]) -> None:
    line = outcome(D2KB[:start] + "".join(noise) + D2KB[start + length :])
    assert len(line.encode().splitlines()) == 1


@given(st.text(), st.randoms(use_true_random=False))
def test_any_text_and_spans_come_back(text: str, rng: random.Random) -> None:
    ends = sorted(rng.sample(range(len(text) + 1), min(len(text) + 1, 4)))
    spans = list(zip(ends[::2], ends[1::2], strict=False))
    document = read_nif(request(text, *spans))
    assert document.text == text
    assert document.spans == (spans or None)
    again = read_nif(b"".join(write_nif(document, [[predicted(text, *span, None) for span in spans]])))
    assert (again.text, again.phrases) == (document.text, document.phrases)


# -- experiments of GERBIL: documents are sent one by one, and answers compared with the gold standard


def annotations(client: httpx.Client, turtle: str) -> set[tuple[int, int, str]]:
    """Start, end and entity of what is answered."""
    reply = client.post("/nif", content=turtle.encode(), headers={"Content-Type": "text/turtle"})
    answer = Graph().parse(data=reply.content, format="turtle")
    return {(start, end, str(answer.value(URIRef(node), ITSRDF.taIdentRef))) for node, start, end in places(answer)}


def test_d2kb_counts_as_the_linkers_own_answers_do(client: httpx.Client, service: LinkingService) -> None:
    """GERBIL's micro recall: an annotation is right if its place and its entity are the gold standard's."""
    documents, theirs, ours = read_dataset("mini:dev"), 0, 0
    for document, answers in zip(documents, service.linker.link_batch(documents), strict=True):
        urls = [service.lookup.entity(each.gold or "").url for each in document.mentions]
        gold = {(each.start, each.end, url) for each, url in zip(document.mentions, urls, strict=True)}
        theirs += len(gold & annotations(client, request(document.text, *((start, end) for start, end, _ in gold))))
        ours += sum(each.entity is not None and each.entity.url == url for each, url in zip(answers, urls, strict=True))
    assert theirs == ours > 0.7 * sum(len(document.mentions) for document in documents)


def test_a2kb_finds_the_same_mentions_as_link(client: httpx.Client) -> None:
    text = "Montreal met Toronto in the Stanley Cup."
    mentions = client.post("/link", json={"text": text}).json()["mentions"]
    linked = {(each["start"], each["end"], each["entity"]["url"]) for each in mentions}
    assert annotations(client, request(text)) == linked != set()
