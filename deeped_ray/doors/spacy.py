"""Entities in a spaCy pipeline: `nlp.add_pipe("deeped", config={"kb": "kb/mini"})`, or `{"url": "https://..."}` of a server.

    ent.kb_id_      title of the entity, or its Wikidata id (`ids`); empty if there is none
    ent._.deeped    the `Prediction`: probability, candidates, reason; None if the span was not asked for

The pipeline's own entities are linked; if a document has none, the linker finds them. A mention that ends inside a token
gets the whole token. All settings are in the pipeline's config, so it is saved and loaded with nothing besides.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans, minibatch, raise_error

import deeped_ray
from deeped_ray import Candidate, DeepEdError, Document, Mention, Prediction

TOKEN = "DEEPED_TOKEN"
NO_NAMES = {"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"}
"""Labels of what names no entity of a knowledge base."""
ErrorHandler = Callable[[str, Any, list[Doc], Exception], None]


class SpansError(DeepEdError):
    """Spans that cannot be linked together."""


@Language.factory(
    "deeped",
    default_config={
        "kb": None,
        "url": None,
        "token": None,
        "ids": "title",
        "threshold": 0.0,
        "explain": True,
        "mentions": None,
        "label": "ENTITY",
        "spans_key": None,
    },
    assigns=["doc.ents", "token.ent_kb_id", "span._.deeped"],
)
def make(
    nlp: Language,  # noqa: ARG001
    name: str,
    kb: str | None,
    url: str | None,
    token: str | None,
    ids: Literal["title", "wikidata"],
    threshold: float,
    explain: bool,
    mentions: Literal["names", "all"] | None,
    label: str,
    spans_key: str | None,
) -> "EntityLinker":
    """The component. It opens the knowledge base, or asks the server, when it sees the first document."""
    if (kb is None) == (url is None):
        raise DeepEdError("Give the component `deeped` a `kb`, or the `url` of a server, in its config.")
    options = {"threshold": threshold, "explain": explain, "mentions": mentions}
    return EntityLinker(name, kb, url, token, options, ids=ids, label=label, spans_key=spans_key)


class EntityLinker:
    def __init__(
        self,
        name: str,
        kb: str | None,
        url: str | None,
        token: str | None,
        options: dict[str, Any],
        *,
        ids: Literal["title", "wikidata"] = "title",
        label: str = "ENTITY",
        spans_key: str | None = None,
    ) -> None:
        self.name, self._kb, self._url, self._token, self._options = name, kb, url, token, options
        self._ids, self._label, self._spans_key = ids, label, spans_key
        self._source: Any = None
        self._process = 0
        self._error_handler: ErrorHandler = raise_error

    def __call__(self, doc: Doc) -> Doc:
        self._annotate([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 64) -> Iterator[Doc]:
        """The documents of a batch are linked in one call. If one of them fails, the error handler gets that one."""
        for docs in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call]
            try:
                self._annotate(docs)
                yield from docs
            except Exception as error:  # noqa: PERF203
                if len(docs) == 1:
                    self._error_handler(self.name, self, docs, error)
                else:
                    yield from self.pipe(docs, batch_size=1)

    def set_error_handler(self, error_handler: ErrorHandler) -> None:
        self._error_handler = error_handler

    def get_error_handler(self) -> ErrorHandler:
        return self._error_handler

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_source": None, "_process": 0}

    def _linker(self) -> Any:
        """A process has its own: threads and connections do not outlive a fork."""
        if self._process != os.getpid():
            token = self._token or os.environ.get(TOKEN)
            self._source = deeped_ray.Client(self._url, token=token) if self._url else deeped_ray.open(str(self._kb))
            self._process = os.getpid()
        return self._source

    def _annotate(self, docs: Sequence[Doc]) -> None:
        spans = [self._spans(doc) for doc in docs]
        texts = [doc.text if given is None else _document(doc, given) for doc, given in zip(docs, spans, strict=True)]
        linked = self._linker().link_all(texts, **self._options)
        for doc, given, predictions in zip(docs, spans, linked, strict=True):
            pairs = self._found(doc, predictions) if given is None else [*zip(given, predictions, strict=True)]
            for place, (span, prediction) in enumerate(pairs):
                self._write(doc, span, prediction)
                if self._spans_key is not None:  # a group gives copies of its spans
                    doc.spans[self._spans_key][place] = span

    def _spans(self, doc: Doc) -> list[Span] | None:
        """What is to be linked; None: the linker has to find it."""
        if self._spans_key is not None:
            if self._spans_key not in doc.spans:
                raise SpansError(f"The document has no span group {self._spans_key!r}.")
            return [*doc.spans[self._spans_key]]
        return [span for span in doc.ents if span.label_ not in NO_NAMES] if doc.ents else None

    def _found(self, doc: Doc, predictions: Sequence[Prediction]) -> list[tuple[Span, Prediction]]:
        """The linker's mentions, as entities of the document."""
        by_place: dict[tuple[int, int], Prediction] = {}
        spans = []
        for each in predictions:
            span = doc.char_span(each.start, each.end, self._label, alignment_mode="expand")
            assert span is not None
            spans.append(span)
            by_place[span.start, span.end] = each
        doc.ents = filter_spans(spans)  # of two mentions in one token, one stays
        return [(span, by_place[span.start, span.end]) for span in doc.ents]

    def _write(self, doc: Doc, span: Span, prediction: Prediction) -> None:
        entity = prediction.entity
        kb_id = "" if entity is None else entity.title if self._ids == "title" else entity.wikidata or ""
        if self._spans_key is None:
            for token in span:
                token.ent_kb_id_ = kb_id
        else:
            span.kb_id_ = kb_id
        user_data: dict[Any, Any] = doc.user_data
        user_data[_key(span)] = asdict(prediction)


def _document(doc: Doc, spans: Sequence[Span]) -> Document:
    """Refuses what the linker would refuse, in spaCy's words."""
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    for span in ordered:
        if span.start == span.end or not span.text.strip():
            raise SpansError(f"The span at token {span.start} is empty, so there is nothing to link.")
    for first, second in itertools.pairwise(ordered):
        if second.start < first.end:
            raise SpansError(
                f"Spans {first.text!r} and {second.text!r} overlap, from token {second.start}. Choose between them with"
                " spacy.util.filter_spans."
            )
    return Document("", doc.text, tuple(Mention(span.start_char, span.end_char) for span in spans))


# -- span._.deeped: kept as plain values, which spaCy can save, and given as a Prediction


def _key(span: Span) -> tuple[str, str, int, int]:
    """Where spaCy keeps an attribute of its own for a span: so it moves with `span.as_doc()`."""
    return "._.", "deeped", span.start_char, span.end_char


def prediction_of(span: Span) -> Prediction | None:
    user_data: dict[Any, Any] = span.doc.user_data
    kept = user_data.get(_key(span))
    if kept is None:
        return None
    pairs = {name: tuple(map(tuple, kept[name])) for name in ("attended", "support")}
    return Prediction(**{**kept, **pairs, "candidates": tuple(Candidate(**each) for each in kept["candidates"])})


Span.set_extension("deeped", getter=prediction_of, force=True)
