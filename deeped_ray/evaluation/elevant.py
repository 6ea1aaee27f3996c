"""Documents and answers for ELEVANT, which shows the errors of a linker by category: its "simple JSONL".

    {"title": "d1", "text": "...", "labels": [{"entity_reference": "https://...", "start_char": 0, "end_char": 8}],
     "predictions": [{"entity_reference": "https://...", "start_char": 0, "end_char": 8}]}

One file is both: `add_benchmark.py` reads its labels, `link_benchmark.py` its predictions. A Wikidata id is better than a
URL, which ELEVANT has to look up.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from deeped_ray.linking.linker import Linker
from deeped_ray.types import DeepEdError, Document, Prediction

Span = dict[str, str | int]


def write_elevant(path: Path, linker: Linker, documents: Sequence[Document]) -> None:
    """Answers at the annotated mentions. Those without an entity are left out, as ELEVANT expects."""
    answers = linker.link_batch(documents, explain=False)
    rows = (_row(linker, *each) for each in zip(documents, answers, strict=True))
    try:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise DeepEdError(f"Cannot write {path}: {error.strerror}.") from error


def _row(linker: Linker, document: Document, answers: Sequence[Prediction]) -> dict[str, str | list[Span]]:
    return {
        "title": document.name,
        "text": document.text,
        "labels": [*_labels(linker, document)],
        "predictions": [
            _span(each.entity.wikidata or each.entity.url, each.start, each.end) for each in answers if each.entity
        ],
    }


def _labels(linker: Linker, document: Document) -> Iterator[Span]:
    catalogue = linker.inputs.catalogue
    for mention in document.mentions:
        if mention.gold is None:
            continue
        entity = catalogue.find_gold(mention)
        if entity is None:
            yield _span(catalogue.url(mention.gold), mention.start, mention.end)
        else:
            title = catalogue.title(entity)
            (wikidata,) = catalogue.wikidata.of(np.array([entity]))
            yield _span(wikidata or catalogue.url(title), mention.start, mention.end)


def _span(reference: str, start: int, end: int) -> Span:
    return {"entity_reference": reference, "start_char": start, "end_char": end}
