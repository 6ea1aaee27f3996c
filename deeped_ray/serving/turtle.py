"""Reads Turtle from strangers into a graph. The cost is bounded by the size of the request.

rdflib's Turtle parser opens no files and no connections, whatever a request says. The classes below turn off what a server
cannot allow, each with its reason.
"""

import re
from typing import Any

from rdflib import Graph, Literal, URIRef
from rdflib.plugins.parsers.notation3 import BadSyntax, RDFSink, SinkParser

from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.serving.turns import DeadlineError, GoneError, TooLargeError

MAX_CHARACTERS = 4_000_000
MAX_STATEMENTS = 100_000
MAX_URI_CHARACTERS = 20_000_000
"""Of all URIs, written in full. A prefix makes 2,000 characters of three, a hundred thousand times."""
SECONDS_PER_STATEMENT = 4e-5

_URI = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\\ud800-\udfff]{0,2000}')
_STRING_ENDS = {
    delimiter: re.compile(pattern, re.DOTALL)
    for delimiter, pattern in {
        '"': r'\\.|["\r\n]',
        "'": r"\\.|['\r\n]",
        '"""': r'\\.|"""(?!")',
        "'''": r"\\.|'''(?!')",
    }.items()
}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = dict(zip("tbnrf\"'\\", "\t\b\n\r\f\"'\\", strict=True))


def read_turtle(turtle: bytes | str, pause: Pause = no_pause) -> Graph:
    """The statements; literals lose their types and languages. Raises ValueError with the line if it is not Turtle."""
    if len(turtle) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(turtle):,} bytes; the limit is {MAX_CHARACTERS:,}")
    text = turtle if isinstance(turtle, str) else turtle.decode("utf-8-sig")
    graph = Graph(bind_namespaces="none")
    # no base URI: rdflib would take our working directory, which the answer would reveal, and resolve "../" in quadratic time
    parser = _Parser(_Sink(graph, pause), turtle=True)
    try:
        parser.loadBuf(text)
    except (TooLargeError, DeadlineError, GoneError):
        raise
    except Exception as error:  # for broken Turtle rdflib raises almost anything, from IndexError to TypeError
        raise ValueError(f"line {parser.lines + 1}: {_reason(error)}") from error
    return graph


def _reason(error: Exception) -> str:
    """One line that can be encoded, whatever part of the request it quotes."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, IndexError):
        return "it ends in the middle of a statement"
    reason = error._why if isinstance(error, BadSyntax) else str(error)
    return " ".join(reason[:200].split()).encode(errors="backslashreplace").decode()


class _Parser(SinkParser):
    def strconst(self, argstr: str, i: int, delim: str) -> tuple[int, str]:
        """The end and the value of a string. rdflib copies the string at every escape: minutes for a long text."""
        ends = (found for found in _STRING_ENDS[delim].finditer(argstr, i) if found[0][0] != "\\")
        end = next(ends, None)
        if end is None or end[0] != delim:
            self.BadSyntax(argstr, i, "the string has no end")
        value = argstr[i : end.start()]
        self.lines += value.count("\n")
        return end.end(), _ESCAPE.sub(_unescape, value)


def _unescape(found: re.Match[str]) -> str:
    if code := found[1] or found[2]:
        return chr(int(code, 16))
    if found[3] not in _ESCAPED:
        raise ValueError(f"{found[0]} is not an escape")
    return _ESCAPED[found[3]]


class _Sink(RDFSink):
    def __init__(self, graph: Graph, pause: Pause) -> None:
        super().__init__(graph)
        self._pause, self.num_statements, self.num_characters = pause, 0, 0

    def newSymbol(self, *args: str) -> URIRef:  # noqa: N802
        self.num_characters += len(args[0])
        if self.num_characters > MAX_URI_CHARACTERS:
            raise ValueError(f"its URIs, written in full, have more than {MAX_URI_CHARACTERS:,} characters")
        # URIRef accepts anything, and logs what looks odd
        if not _URI.fullmatch(args[0]):
            raise ValueError(f"<{args[0][:100]}> is not a full URI")
        return URIRef(args[0])

    def newLiteral(self, s: str, dt: URIRef | None, lang: str | None) -> Literal:  # noqa: ARG002, N802
        # rdflib would compute the value of a typed literal: a gigabyte of digits for "1E+999999999"^^xsd:decimal
        return Literal(s)

    def makeStatement(self, quadruple: Any, why: Any = None) -> None:  # noqa: N802
        self._pause(SECONDS_PER_STATEMENT)
        self.num_statements += 1
        if self.num_statements > MAX_STATEMENTS:
            raise ValueError(f"it has more than {MAX_STATEMENTS:,} statements")
        super().makeStatement(quadruple, why)
