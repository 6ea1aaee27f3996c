"""Answers as JSON, written from the columns: the bytes that `views.answer_of` would give of every prediction.

The constant part of an entity is remembered. Numbers of a column become text in one call.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from deeped_ray.linking.answers import (
    COHERENCE,
    LOCAL,
    PRIOR,
    PROBABILITY,
    SCORE,
    Answers,
    Columns,
    Doubles,
    Knowledge,
    Weighed,
)
from deeped_ray.linking.encoding import Ints
from deeped_ray.linking.retrieval import SOURCES

_SOURCES = [orjson.dumps(source) for source in SOURCES]
_REMEMBERED = 2**15


class _Texts(NamedTuple):
    """A window's candidates and reasons as JSON."""

    offsets: list[int]
    candidates: list[bytes]
    none: list[bytes]
    attended: list[list[bytes]]
    support: list[list[bytes]]


def json_pieces(answers: Answers, *, top: int | None, explain: bool, per_piece: int) -> Iterator[bytes]:
    """The mentions with commas between them, some at a time."""
    texts = [_texts(window, answers, top=top, explain=explain) for window in answers.windows]
    for start in range(0, len(answers), per_piece):
        places = range(start, min(start + per_piece, len(answers)))
        mentions = (_mention(answers, place, texts, top=top) for place in places)
        yield (b"," if start else b"") + b",".join(mentions)


def _mention(answers: Answers, place: int, texts: Sequence[_Texts], *, top: int | None) -> bytes:
    number, row = answers.rows[place]
    mention, reason, found = answers.document.mentions[place], answers.reasons[place], texts[number]
    first, end = found.offsets[row], found.offsets[row + 1]
    return (
        b'{"start":%d,"end":%d,"surface":%b,"entity":%b,"reason":%b,"none_probability":%b,"candidates":[%b],'
        b'"attended":[%b],"support":[%b]}'
    ) % (
        mention.start,
        mention.end,
        orjson.dumps(answers.document.surface(mention)),
        found.candidates[first] if reason is None else b"null",
        b"null" if reason is None else orjson.dumps(reason),
        found.none[row],
        b",".join(found.candidates[first : end if top is None else min(end, first + top)]),
        b",".join(found.attended[row]) if found.attended else b"",
        b",".join(found.support[row]) if found.support else b"",
    )


def _texts(window: Columns, answers: Answers, *, top: int | None, explain: bool) -> _Texts:
    knowledge, offsets = answers.knowledge, window.offsets.tolist()
    # of every mention as many as are written, its entity at least
    asked = [
        place
        for first, end in itertools.pairwise(offsets)
        for place in range(first, end if top is None else min(end, first + max(top, 1)))
    ]
    candidates = [b""] * len(window.entity)
    numbers = [_numbers(window.numbers[column][asked]) for column in (PRIOR, LOCAL, COHERENCE, SCORE, PROBABILITY)]
    if not knowledge.has_coherence:
        numbers[2] = [b"null"] * len(asked)
    sources, constant = window.source[asked].tolist(), _constant(window.entity[asked], knowledge)
    for place, (head, tail), source, *parts in zip(asked, constant, sources, *numbers, strict=True):
        candidates[place] = b'%b,"prior":%b,"local":%b,"coherence":%b,"score":%b,"probability":%b,"source":%b%b' % (
            head,
            *parts,
            _SOURCES[source],
            tail,
        )
    attended: list[list[bytes]] = []
    support: list[list[bytes]] = []
    if explain and window.attended is not None:
        words = [*map(orjson.dumps, knowledge.words_of(window.words))]
        attended = _lists(b'{"word":%b,"weight":%b}', [words[each] for each in window.attended.what], window.attended)
    if explain and window.support is not None:
        support = _lists(b'{"mention":%b,"weight":%b}', _numbers(window.support.what), window.support)
    return _Texts(offsets, candidates, _numbers(window.none), attended, support)


def _lists(template: bytes, what: Sequence[bytes], weighed: Weighed) -> list[list[bytes]]:
    items = [template % pair for pair in zip(what, _numbers(weighed.weight), strict=True)]
    ends = weighed.offsets.tolist()
    return [items[start:end] for start, end in itertools.pairwise(ends)]


def _numbers(values: Doubles | Ints) -> list[bytes]:
    if not len(values):
        return []
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def _constant(entities: Ints, knowledge: Knowledge) -> list[tuple[bytes, bytes]]:
    """What stands before and after the numbers of each entity."""
    known, asked = knowledge.as_json, entities.tolist()
    found = [*map(known.get, asked)]
    if None in found:
        new = np.array([entity for entity, pair in zip(asked, found, strict=True) if pair is None], np.int64)
        catalogue = knowledge.catalogue
        columns = catalogue.titles(new), catalogue.page_ids[new].tolist(), catalogue.wikidata.of(new)
        made = {
            entity: _ends(title, page_id, catalogue.url(title), wikidata)
            for entity, title, page_id, wikidata in zip(new.tolist(), *columns, strict=True)
        }
        if len(known) > _REMEMBERED:
            known.clear()
        known.update(made)
        found = [pair or made[entity] for entity, pair in zip(asked, found, strict=True)]
    return [pair for pair in found if pair]


def _ends(title: str, page_id: int, url: str, wikidata: str | None) -> tuple[bytes, bytes]:
    return (
        b'{"title":%b,"page_id":%d,"url":%b' % (orjson.dumps(title), page_id, orjson.dumps(url)),
        b',"wikidata":"%b"}' % wikidata.encode() if wikidata else b',"wikidata":null}',
    )
