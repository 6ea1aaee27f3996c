"""The answers for a text: a list that draws itself in notebooks and becomes a table.

    found = kb.link("Montreal met Toronto in the Stanley Cup.")
    found                # in a notebook: the text with its names coloured, the surer the stronger, and a row for each
    found[0]             # the candidates of one name
    found.to_pandas()    # or to_arrow(): a row for each mention, with the columns of `link_corpus`

HTML has its style in it: notebooks keep no style sheet, and show it on light and dark ground.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from deeped_ray.extras import named
from deeped_ray.types import Candidate, Prediction

if TYPE_CHECKING:
    import pyarrow

ENTITY = ("title", "page_id", "url", "wikidata", "probability", "prior")
CANDIDATE = (*ENTITY, "local", "coherence", "score", "source")
_NOTHING = dict.fromkeys(ENTITY)
_MARK = "border-radius:3px;padding:1px 2px;text-decoration:none;color:inherit;"
_BLUE, _RED = "77,130,224", "194,47,73"
_CELL = "text-align:left;padding:2px 10px 2px 0;"


class Predictions(list[Prediction]):
    """One prediction per mention, in the order of the spans, and the text they are of."""

    def __init__(self, predictions: Iterable[Prediction] = (), text: str = "") -> None:
        super().__init__(predictions)
        self.text = text

    def to_arrow(self) -> "pyarrow.Table":
        """A row for each mention."""
        with named(pyarrow="notebook"):
            import pyarrow
        return pyarrow.Table.from_pylist([mention_row(each) for each in self], pyarrow.schema(mention_fields()))

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each mention. Candidates, attended words and support are arrays of dicts."""
        with named(pyarrow="notebook"):
            return self.to_arrow().to_pandas().astype({"page_id": "Int64"})

    def _repr_html_(self) -> str:
        text = f'<div style="line-height:1.8;white-space:pre-wrap">{self._marked()}</div>' if self.text else ""
        return text + (_candidates(self[0]) if len(self) == 1 else _mentions(self) if self else "")

    def _marked(self) -> str:
        """The text, each mention in its colour."""
        pieces, position = [], 0
        for each in sorted(self, key=lambda each: each.start):
            pieces += [escape(self.text[position : each.start]), _mark(each, self.text[each.start : each.end])]
            position = each.end
        return "".join([*pieces, escape(self.text[position:])])


_ANY = Prediction(0, 0, "")


# -- as a table


def mention_row(answer: Prediction, *, top: int | None = None) -> dict[str, Any]:
    """What a table says of a mention, with its best `top` candidates."""
    found = answer.entity
    return {
        "start": answer.start,
        "end": answer.end,
        "surface": answer.surface,
        **({name: getattr(found, name) for name in ENTITY} if found else _NOTHING),
        "reason": answer.reason,
        "none_probability": answer.none_probability,
        "candidates": [{name: getattr(each, name) for name in CANDIDATE} for each in answer.candidates[:top]],
        "attended": [{"word": word, "weight": weight} for word, weight in answer.attended],
        "support": [{"mention": place, "weight": weight} for place, weight in answer.support],
    }


def mention_fields(*, with_candidates: bool = True, explain: bool = True) -> list[tuple[str, Any]]:
    """Names and Arrow types of these columns."""
    import pyarrow as pa

    kinds = {"title": pa.string(), "page_id": pa.int64(), "url": pa.string(), "wikidata": pa.string()}
    kinds["source"] = pa.string()
    fields = {"start": pa.int32(), "end": pa.int32(), "surface": pa.string()}
    fields |= {name: kinds.get(name, pa.float32()) for name in ENTITY}
    fields |= {"reason": pa.string(), "none_probability": pa.float32()}
    if with_candidates:
        fields["candidates"] = pa.list_(pa.struct([(name, kinds.get(name, pa.float32())) for name in CANDIDATE]))
    if explain:
        fields["attended"] = pa.list_(pa.struct([("word", pa.string()), ("weight", pa.float32())]))
        fields["support"] = pa.list_(pa.struct([("mention", pa.int32()), ("weight", pa.float32())]))
    return [*fields.items()]


# -- as HTML


def _mark(answer: Prediction, surface: str) -> str:
    """A mention in the text. Blue, as on the server's page; dashed if it has no entity."""
    if answer.entity is None:
        style = f"{_MARK}border-bottom:2px dashed rgba({_RED},.7)"
        return f'<span style="{style}" title="{escape(answer.reason or "")}">{escape(surface)}</span>'
    strength = round(0.06 + 0.3 * certainty_of(answer.probability), 2)
    style = f"{_MARK}background:rgba({_BLUE},{strength});border-bottom:2px solid rgba({_BLUE},{strength + 0.4:.2f})"
    about = f"{answer.entity.title}: probability {answer.probability:.3f}"
    return _link(answer.entity, escape(surface), f'style="{style}" title="{escape(about)}"')


def certainty_of(probability: float) -> float:
    """0 for a guess, 1 for a certain answer: half of the scale is below 90%, where answers begin to be trusted."""
    return probability / 1.8 if probability < 0.9 else 0.5 + 5 * (probability - 0.9)


def _link(entity: Candidate, shown: str, attributes: str = "") -> str:
    """To the entity's page, if that is on the web: whoever made the knowledge base chose the address."""
    if not entity.url.startswith(("http://", "https://")):
        return f"<span {attributes}>{shown}</span>"
    return f'<a href="{escape(entity.url)}" target="_blank" rel="noopener" {attributes}>{shown}</a>'


def _mentions(answers: Sequence[Prediction]) -> str:
    rows = []
    for each in answers:
        entity = each.entity
        named_as = f"{_link(entity, escape(entity.title))} {escape(entity.wikidata or '')}" if entity else ""
        rows.append(
            (
                escape(each.surface),
                named_as,
                f"{each.probability:.3f}" if entity else "",
                _words(each) if entity else escape(each.reason or ""),
            )
        )
    return _table(("mention", "entity", "probability", "why"), rows)


def _candidates(answer: Prediction) -> str:
    """One mention: every candidate with the parts of its score."""
    head = f"<b>{escape(answer.surface)}</b> {_words(answer)} {escape(answer.reason or '')}"
    rows = [
        (
            f"{_link(each, escape(each.title))} {escape(each.wikidata or '')}",
            f"{each.probability:.3f}",
            f"{each.prior:.3f}",
            f"{each.local:.3f}",
            "" if each.coherence is None else f"{each.coherence:.3f}",
            escape(each.source),
        )
        for each in answer.candidates
    ]
    rows += [("<i>none of these</i>", f"{answer.none_probability:.3f}", "", "", "", "")]
    return f"<div>{head}</div>" + _table(("candidate", "probability", "prior", "local", "coherence", "found by"), rows)


def _words(answer: Prediction) -> str:
    words = ", ".join(escape(word) for word, _ in answer.attended[:4])
    return f"looked at {words}" if words else ""


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of cells that are HTML already."""
    head = "".join(f'<th style="{_CELL}">{each}</th>' for each in headers)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
