"""GERBIL's format, NIF: a text and its phrases in Turtle in, the same with entities out.

A request with phrases asks for their entities (D2KB). A request without phrases asks for mentions and entities (A2KB).
"""

import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal as OneOf
from typing import NamedTuple

from rdflib import RDF, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from deeped_ray.corpus.wikidata_ids import URI
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.serving.schemas import MAX_SPANS, MAX_TEXT_CHARACTERS, LinkRequest
from deeped_ray.serving.turtle import read_turtle
from deeped_ray.serving.work import Predictions, Work, in_layers, in_order
from deeped_ray.types import Candidate, DeepEdError, Prediction

NIF = Namespace("http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#")
_PREFIXES = f"""@prefix nif: <{NIF}> .
@prefix itsrdf: <http://www.w3.org/2005/11/its/rdf#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
Identifier = OneOf["page", "wikidata"]
"""What names an entity: the address of its page, or its URI in Wikidata."""
_PHRASE_BYTES = 235
"""Of a phrase in a reply, besides its URI, its text and its entity."""
_NO_MENTIONS = {NIF.Context, NIF.Title, NIF.Paragraph, NIF.Sentence, NIF.Word}
_NOT_IN_URI = re.compile(r'[\x00-\x20<>"{}|^`\\]')


class NifError(DeepEdError):
    """A request that is not NIF, or not the kind of NIF that is answered here."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A mention, with the URI that the client gave it."""

    uri: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NifDocument:
    """One nif:Context. Offsets are characters, end exclusive, whatever the client counts in."""

    uri: str
    text: str
    phrases: tuple[Phrase, ...]
    offsets: Sequence[int]
    """Where each character begins, and where the text ends, in the client's unit: characters or UTF-16 units."""

    @property
    def spans(self) -> list[tuple[int, int]] | None:
        """What to link, in the order of the text, each span once. None: find the mentions first (A2KB)."""
        return sorted({(phrase.start, phrase.end) for phrase in self.phrases}) or None

    def phrase_of(self, prediction: Prediction) -> Phrase:
        """A mention that we found, with a URI that we make."""
        start, end = self.offsets[prediction.start], self.offsets[prediction.end]
        return Phrase(f"{self.uri.split('#')[0]}#char={start},{end}", prediction.start, prediction.end)


class _Claim(NamedTuple):
    """A phrase as the client describes it, in the client's unit."""

    node: Node
    start: int
    end: int
    anchors: set[str]


def nif_work(turtle: bytes, pause: Pause = no_pause, *, confidence: bool, identifier: Identifier = "page") -> Work:
    document = read_nif(turtle, pause)
    write = partial(write_nif, document, confidence=confidence, identifier=identifier)
    texts = in_layers(document.text, document.spans)
    return Work(texts, write, partial(_mention_bytes, document), fixed_bytes=_fixed_bytes(document))


def read_nif(turtle: bytes | str, pause: Pause = no_pause) -> NifDocument:
    """A request's text and mentions. Their entities are not read: they may be the gold standard."""
    try:
        graph = read_turtle(turtle, pause)
    except ValueError as error:
        raise NifError(f"Cannot read the request: {error}. Send Turtle in UTF-8, with all URIs in full.") from error
    context = _read_context(graph)
    text = _read_text(graph, context)
    claims = [_read_claim(graph, node) for node in paced(_phrase_nodes(graph, context, pause), pause)]
    ends = {str(end) for end in graph.objects(context, NIF.endIndex)}
    offsets = _offsets(text, claims, ends, pause)
    places = (Phrase(str(claim.node), *_place(offsets, claim)) for claim in paced(claims, pause))
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


def _phrase_nodes(graph: Graph, context: URIRef, pause: Pause) -> set[Node]:
    """The mentions: phrases, and everything else in the text whose type does not rule it out."""
    ours = set(paced(graph.subjects(NIF.referenceContext, context), pause))
    phrases = set(paced(graph.subjects(RDF.type, NIF.Phrase), pause))
    if astray := phrases - ours:
        raise NifError(
            f"{_name(min(astray, key=str))} does not belong to the text. Give it nif:referenceContext {_name(context)}."
        )
    nodes = phrases | {node for node in paced(ours, pause) if _NO_MENTIONS.isdisjoint(graph.objects(node, RDF.type))}
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
        raise NifError(f"{_name(node)} has {found} for nif:{name}. Give it one whole number, an offset in the text.")
    return int(values[0])


def _offsets(text: str, claims: Sequence[_Claim], ends: set[str], pause: Pause) -> Sequence[int]:
    """Where characters begin, in the client's unit.

    GERBIL counts characters, but a client in Java or JavaScript may count UTF-16 units. The two differ after an emoji.
    Then nif:anchorOf of the phrases decides; if both units fit the anchors, the end of the text decides.
    """
    characters = range(len(text) + 1)
    wrong = next((claim for claim in paced(claims, pause) if not _fits(text, characters, claim)), None)
    if wrong is None and (str(len(text)) in ends or len(text.encode("utf-16-le")) == 2 * len(text)):
        return characters
    units = list(itertools.accumulate((1 + (character > "\uffff") for character in paced(text, pause)), initial=0))
    if all(_fits(text, units, claim) for claim in paced(claims, pause)) and (wrong or str(units[-1]) in ends):
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
    """The characters where a phrase begins and ends, or the nearest ones."""
    last = len(offsets) - 1
    return min(bisect_left(offsets, claim.start), last), min(bisect_left(offsets, claim.end), last)


def _misfit(text: str, claim: _Claim) -> str:
    where = f"{_name(claim.node)} goes from {claim.start} to {claim.end}"
    if claim.end > len(text) or claim.start > len(text):
        return f"{where}, but the text has {len(text)} characters. Count characters from 0, the end exclusive."
    found, expected = text[claim.start : claim.end][:50], min(claim.anchors)[:50]
    return f"{where}, but the text has {found!r} there, not {expected!r}. Count characters from 0, the end exclusive."


def _name(node: Node) -> str:
    return f"<{str(node)[:200]}>"


def write_nif(
    document: NifDocument,
    answers: Sequence[Predictions],
    *,
    confidence: bool = False,
    identifier: Identifier = "page",
) -> Iterator[bytes]:
    """All phrases of the request, or all found mentions that have an entity.

    With `confidence`, GERBIL picks the best threshold on the test set itself. Leave it out for figures to report.
    """
    predictions = in_order(answers)
    by_span = {(prediction.start, prediction.end): prediction for prediction in predictions}
    phrases = document.phrases or [document.phrase_of(prediction) for prediction in predictions if prediction.entity]
    yield (_PREFIXES + _context_block(document)).encode()
    for phrase in phrases:
        entity = by_span[phrase.start, phrase.end].entity
        lines = [f"itsrdf:taIdentRef <{_identifier(entity, identifier)}>"] if entity else []
        if entity and confidence:
            lines.append(f'itsrdf:taConfidence "{entity.probability}"^^xsd:double')
        yield _phrase_block(document, phrase, lines).encode()


def _identifier(entity: Candidate, identifier: Identifier) -> str:
    """Of an entity without a Wikidata id, the page."""
    return URI + entity.wikidata if identifier == "wikidata" and entity.wikidata else _quoted(entity.url)


def _fixed_bytes(document: NifDocument) -> int:
    """The text and the given phrases. Thousands of phrases may all name the same, large part of the text."""
    phrases = sum(_PHRASE_BYTES + len(each.uri) + each.end - each.start for each in document.phrases)
    return len(document.text.encode()) + phrases + len(document.uri) * len(document.phrases)


def _mention_bytes(document: NifDocument, _: LinkRequest, answer: Prediction) -> int:
    """What an answer adds to a given phrase, or a found mention with its answer."""
    if answer.entity is None:
        return 0
    found = 0 if document.phrases else _PHRASE_BYTES + 2 * len(document.uri) + len(answer.surface.encode())
    return found + len(answer.entity.url) + 30


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
    return json.dumps(text, ensure_ascii=False)  # Turtle knows all of JSON's escapes


def _quoted(uri: str) -> str:
    return _NOT_IN_URI.sub(lambda found: f"%{ord(found[0]):02X}", uri)
