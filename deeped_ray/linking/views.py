"""Predictions as text for people, and as JSON for programs: `deeped link --json` and `POST /link` answer the same."""

import re
from collections.abc import Sequence
from typing import Any

from deeped_ray.running.console import LINK, NO_LINK, PLAIN, Style, table
from deeped_ray.types import Prediction

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def linked_text(text: str, predictions: Sequence[Prediction], *, num_words: int = 4, style: Style = PLAIN) -> str:
    """The text with its mentions marked, then a line per mention: its entity, and why."""
    text = _CONTROL.sub("\ufffd", text)  # a terminal would obey them
    marked, position = "", 0
    for prediction in sorted(predictions, key=lambda each: each.start):
        marked += text[position : prediction.start] + _mark(prediction, text, style)
        position = prediction.end
    marked += text[position:]
    rows = [_row(prediction, text, num_words) for prediction in predictions]
    filled = [i for i, column in enumerate(zip(*rows, strict=True)) if any(column)]
    headers = ["mention", "entity", "wikidata", "probability", "usually", "why"]
    columns = table([headers[i] for i in filled], [[row[i] for i in filled] for row in rows], style=style)
    return f"{marked}\n\n{columns}" if rows else marked


def _mark(prediction: Prediction, text: str, style: Style) -> str:
    surface = text[prediction.start : prediction.end]
    if style.is_coloured:
        return style.paint(surface, LINK if prediction.entity else NO_LINK)
    return f"[{surface} => {prediction.entity.title if prediction.entity else '?'}]"


def _row(prediction: Prediction, text: str, num_words: int) -> tuple[str, str | None, str, float | None, str, str]:
    surface = " ".join(text[prediction.start : prediction.end].split())
    entity = prediction.entity
    if entity is None:
        return surface, None, "", None, "", prediction.reason or ""
    usual = max(prediction.candidates, key=lambda candidate: candidate.prior)
    is_overruled = usual.prior > entity.prior
    words = ", ".join(word for word, _ in prediction.attended[:num_words])
    return (
        surface,
        entity.title,
        entity.wikidata or "",
        entity.probability,
        f"{usual.title} ({usual.prior:.0%} of links)" if is_overruled else "",
        f"looked at {words}" if words else "",
    )


def describe(prediction: Prediction, *, num_words: int, style: Style = PLAIN) -> str:
    """A mention with its answer, its attended words, and the parts of every candidate's score."""
    answer = prediction.entity.title if prediction.entity else f"nothing: {prediction.reason}"
    head = f"{prediction.surface!r} [{prediction.start}:{prediction.end}] -> {answer}"
    if not prediction.candidates:
        return head
    words = ", ".join(f"{word} {weight:.2f}" for word, weight in prediction.attended[:num_words])
    rows = [
        (
            c.title,
            c.source,
            c.prior,
            c.local,
            "" if c.coherence is None else f"{c.coherence:.3f}",
            c.score,
            c.probability,
        )
        for c in prediction.candidates
    ]
    headers = ["candidate", "source", "prior", "local", "coherence", "score", "probability"]
    columns = table(headers, rows, style=style)
    told = [f"attended words: {words}"] if words else []
    told += [*columns.splitlines(), f"none of these: probability {prediction.none_probability:.3f}"]
    return "\n".join([head, *(f"  {line}" for line in told)])


def answer_of(prediction: Prediction, *, top: int | None = None, explain: bool = True) -> dict[str, Any]:
    """A mention as JSON has it; `entity` and candidates stay dataclasses."""
    return {
        "start": prediction.start,
        "end": prediction.end,
        "surface": prediction.surface,
        "entity": prediction.entity,
        "reason": prediction.reason,
        "none_probability": prediction.none_probability,
        "candidates": prediction.candidates[:top],
        "attended": [{"word": word, "weight": weight} for word, weight in prediction.attended] if explain else [],
        "support": [{"mention": place, "weight": w} for place, w in prediction.support] if explain else [],
    }
