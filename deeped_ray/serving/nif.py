"""GERBIL's NIF: requests in Turtle into a text and spans, predictions back into Turtle.

A request with phrases asks for their entities (D2KB), one without for mentions and entities (A2KB).
"""

import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rdflib import RDF, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from deeped_ray.serving.schemas import MAX_SPANS, MAX_TEXT_CHARACTERS
from deeped_ray.serving.turtle import read_turtle
from deeped_ray.types import Candidate, DeepEdError, Prediction

NIF = Namespace("http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#")
_PREFIXES = f"""@prefix nif: <{NIF}> .
@prefix itsrdf: <http://www.w3.org/2005/11/its/rdf#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
_NO_MENTIONS = {NIF.Context, NIF.Title, NIF.Paragraph, NIF.Sentence, NIF.Word}
_NOT_IN_URI = re.compile(r'[\x00-\x20<>"{}|^`\\]')


class NifError(DeepEdError):
    """A request that is no NIF, or not of the kind that is answered here."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A mention under the URI that the client knows it by."""

    uri: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NifDocument:
    """One nif:Context; offsets are characters, end exclusive, however the client counts."""

    uri: str
    text: str
    phrases: tuple[Phrase, ...]
    offsets: Sequence[int]
    """Where each character begins, and the text ends, as the client counts: in characters or in UTF-16 units."""

    @property
    def spans(self) -> list[tuple[int, int]] | None:
        """What to link, in the order of the text, each span once; None where mentions are to be found first (A2KB)."""
        return sorted({(phrase.start, phrase.end) for phrase in self.phrases}) or None

    def phrase_of(self, prediction: Prediction) -> Phrase:
        """A mention that we have found, under a URI of our own."""
        start, end = self.offsets[prediction.start], self.offsets[prediction.end]
        return Phrase(f"{self.uri.split('#')[0]}#char={start},{end}", prediction.start, prediction.end)


class _Claim(NamedTuple):
    """A phrase as the client describes it."""

    node: Node
    start: int
    end: int
    anchors: set[str]


def read_nif(turtle: bytes | str) -> NifDocument:
    """A request's text and mentions; what it says about their entities is left unread: it may be the gold standard."""
    try:
        graph = read_turtle(turtle)
    except ValueError as error:
        raise NifError(f"The request cannot be read: {error}. Send Turtle in UTF-8, with all URIs in full.") from error
    context = _read_context(graph)
    text = _read_text(graph, context)
    claims = [_read_claim(graph, node) for node in _phrase_nodes(graph, context)]
    ends = {str(end) for end in graph.objects(context, NIF.endIndex)}
    offsets = _offsets(text, claims, ends)
    places = (Phrase(str(claim.node), *_place(offsets, claim)) for claim in claims)
    phrases = sorted(places, key=lambda phrase: (phrase.start, phrase.end, phrase.uri))
    return NifDocument(str(context), text, tuple(phrases), offsets)


def _read_context(graph: Graph) -> URIRef:
    contexts = set(graph.subjects(RDF.type, NIF.Context))
    if len(contexts) != 1:
        raise NifError(f"The request has {len(contexts)} resources of type nif:Context. Send one text per request.")
    context = contexts.pop()
    if not isinstance(context, URIRef):
        raise NifError("The nif:Context has no URI. Give it one, such as <http://example.org/text#char=0,42>.")
    return context


def _read_text(graph: Graph, context: URIRef) -> str:
    texts = list(graph.objects(context, NIF.isString))
    if len(texts) != 1 or not isinstance(texts[0], Literal):
        raise NifError(f"{_name(context)} has {len(texts)} texts. Give it one, as a string after nif:isString.")
    text = str(texts[0])
    if len(text) > MAX_TEXT_CHARACTERS:
        raise NifError(f"The text has {len(text):,} characters. Send at most {MAX_TEXT_CHARACTERS:,}.")
    if re.search("[\ud800-\udfff]", text):
        raise NifError(
            r"The text has half of a surrogate pair. Write characters beyond U+FFFF as one, or as \UXXXXXXXX."
        )
    return text


def _phrase_nodes(graph: Graph, context: URIRef) -> set[Node]:
    """The mentions: phrases, and what has no type that says otherwise."""
    ours = set(graph.subjects(NIF.referenceContext, context))
    phrases = set(graph.subjects(RDF.type, NIF.Phrase))
    if astray := phrases - ours:
        raise NifError(
            f"{_name(min(astray, key=str))} is not of the text. Give it nif:referenceContext {_name(context)}."
        )
    nodes = phrases | {node for node in ours if _NO_MENTIONS.isdisjoint(graph.objects(node, RDF.type))}
    if len(nodes) > MAX_SPANS:
        raise NifError(f"The text has {len(nodes):,} phrases. Send at most {MAX_SPANS:,}.")
    return nodes


def _read_claim(graph: Graph, node: Node) -> _Claim:
    if not isinstance(node, URIRef):
        raise NifError("A phrase has no URI. Give it one, such as <http://example.org/text#char=0,42>.")
    start, end = (_read_offset(graph, node, name) for name in ("beginIndex", "endIndex"))
    return _Claim(node, start, end, {str(anchor) for anchor in graph.objects(node, NIF.anchorOf)})


def _read_offset(graph: Graph, node: Node, name: str) -> int:
    values = [str(value).strip() for value in graph.objects(node, NIF[name])]
    if len(values) != 1 or not re.fullmatch(r"0*[0-9]{1,9}", values[0]):
        found = f"{values}"[:100]
        raise NifError(f"{_name(node)} has {found} for nif:{name}. Give it one whole number, a place in the text.")
    return int(values[0])


def _offsets(text: str, claims: Sequence[_Claim], ends: set[str]) -> Sequence[int]:
    """Where characters begin, as the client counts.

    GERBIL counts characters, but a client in Java or JavaScript may count UTF-16 units. They differ after an emoji, so
    there the phrases' nif:anchorOf tell which it is and, where these fit both, the end of the text does.
    """
    characters = range(len(text) + 1)
    wrong = next((claim for claim in claims if not _fits(text, characters, claim)), None)
    if wrong is None and str(len(text)) in ends:
        return characters
    units = list(itertools.accumulate((1 + (character > "\uffff") for character in text), initial=0))
    if all(_fits(text, units, claim) for claim in claims) and (wrong or str(units[-1]) in ends):
        return units
    if wrong:
        raise NifError(_misfit(text, wrong))
    return characters


def _fits(text: str, offsets: Sequence[int], claim: _Claim) -> bool:
    start, end = _place(offsets, claim)
    if [offsets[start], offsets[end]] != [claim.start, claim.end]:
        return False
    return all(len(anchor) == end - start and text.startswith(anchor, start) for anchor in claim.anchors)


def _place(offsets: Sequence[int], claim: _Claim) -> tuple[int, int]:
    """The characters at which a phrase begins and ends, or the nearest."""
    last = len(offsets) - 1
    return min(bisect_left(offsets, claim.start), last), min(bisect_left(offsets, claim.end), last)


def _misfit(text: str, claim: _Claim) -> str:
    where = f"{_name(claim.node)} goes from {claim.start} to {claim.end}"
    if claim.end > len(text) or claim.start > len(text):
        return f"{where}, and the text has {len(text)} characters. Count characters from 0, the end exclusive."
    found, expected = text[claim.start : claim.end][:50], min(claim.anchors)[:50]
    return f"{where}, where the text has {found!r} and not {expected!r}. Count characters from 0, the end exclusive."


def _name(node: Node) -> str:
    return f"<{str(node)[:200]}>"


def write_nif(
    document: NifDocument,
    predictions: Sequence[Prediction],
    *,
    entity_uri: Callable[[Candidate], str],
    confidence: bool = False,
) -> str:
    """The answer: all phrases of the request, or all mentions found that have an entity.

    With `confidence` GERBIL takes the threshold that is best on the very test set: leave it out for figures to report.
    """
    by_span = {(prediction.start, prediction.end): prediction for prediction in predictions}
    phrases = document.phrases or [document.phrase_of(prediction) for prediction in predictions if prediction.best]
    blocks = [_context_block(document)]
    for phrase in phrases:
        entity = by_span[phrase.start, phrase.end].best
        lines = [f"itsrdf:taIdentRef <{_quoted(entity_uri(entity))}>"] if entity else []
        if entity and confidence:
            lines.append(f'itsrdf:taConfidence "{entity.probability}"^^xsd:double')
        blocks.append(_phrase_block(document, phrase, lines))
    return _PREFIXES + "".join(blocks)


def _context_block(document: NifDocument) -> str:
    lines = ["a nif:Context, nif:String", f"nif:isString {_string(document.text)}"]
    return _block(document.uri, lines + _indices(0, document.offsets[-1]))


def _phrase_block(document: NifDocument, phrase: Phrase, lines: list[str]) -> str:
    surface = document.text[phrase.start : phrase.end]
    place = _indices(document.offsets[phrase.start], document.offsets[phrase.end])
    about = ["a nif:Phrase, nif:String", f"nif:anchorOf {_string(surface)}", *place]
    return _block(phrase.uri, [*about, f"nif:referenceContext <{document.uri}>", *lines])


def _indices(begin: int, end: int) -> list[str]:
    return [f'nif:beginIndex "{begin}"^^xsd:nonNegativeInteger', f'nif:endIndex "{end}"^^xsd:nonNegativeInteger']


def _block(uri: str, lines: Sequence[str]) -> str:
    return f"\n<{uri}>\n    " + " ;\n    ".join(lines) + " .\n"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON's escapes are all among Turtle's


def _quoted(uri: str) -> str:
    return _NOT_IN_URI.sub(lambda found: f"%{ord(found[0]):02X}", uri)
