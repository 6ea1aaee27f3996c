"""Predictions as HTML and as tables."""

import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from deeped_ray.predictions import Predictions, certainty_of
from deeped_ray.types import Candidate, Prediction

TEXT = "Ada <met> Charles & Mary"


def candidate(title: str, probability: float, url: str = "https://e.org/x") -> Candidate:
    return Candidate(title, 7, url, 0.5, 0.25, None, 1.0, probability, wikidata="Q7")


ADA = Prediction(0, 3, "Ada", (candidate("Ada Lovelace", 0.95), candidate("Ada (city)", 0.01)), (("met", 0.5),))
CHARLES = Prediction(
    10, 17, "Charles", (candidate("Charles <Babbage>", 0.4, "javascript:alert(1)"),), support=((0, 0.5),)
)
MARY = Prediction(20, 24, "Mary", reason='no entity is "known"', none_probability=1.0)
FOUND = Predictions([ADA, CHARLES, MARY], TEXT)


class Reader(HTMLParser):
    """The text of HTML, its tags and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.opened, self.links = "", list[str](), list[str | None]()
        self.feed(html)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_text_is_drawn_whole_with_a_row_for_each_mention() -> None:
    read = Reader(FOUND._repr_html_())
    assert read.text.startswith(TEXT)
    assert all(word in read.text for word in ("Ada Lovelace", "Q7", "0.950", "looked at met", 'no entity is "known"'))


def test_only_addresses_on_the_web_are_linked() -> None:
    assert set(Reader(FOUND._repr_html_()).links) == {"https://e.org/x"}


def test_the_surer_the_answer_the_stronger_the_colour() -> None:
    strengths = [float(each) for each in re.findall(r"background:rgba\([\d,]+,([\d.]+)\)", FOUND._repr_html_())]
    assert strengths == sorted(strengths, reverse=True)
    assert [certainty_of(each) for each in (0, 0.9, 1)] == pytest.approx([0, 0.5, 1])


def test_one_prediction_draws_its_candidates() -> None:
    text = Reader(ADA._repr_html_()).text
    assert all(word in text for word in ("Ada (city)", "none of these", "0.010"))
    assert TEXT not in text


def test_nothing_found_draws_the_text() -> None:
    assert Reader(Predictions([], TEXT)._repr_html_()).text == TEXT


def test_a_table_has_a_row_for_each_mention() -> None:
    frame, table = FOUND.to_pandas(), FOUND.to_arrow()
    assert [*frame["title"]][:2] == ["Ada Lovelace", "Charles <Babbage>"]
    assert frame["page_id"].isna().tolist() == [False, False, True]
    assert table.column_names == [*frame.columns]
    assert table["candidates"].to_pylist()[0][1]["title"] == "Ada (city)"
    assert table.schema.field("probability").type == pa.float32()


def test_an_empty_table_has_the_same_columns() -> None:
    assert [*Predictions().to_pandas().columns] == Predictions().to_arrow().column_names == [*FOUND.to_pandas().columns]


def test_predictions_are_a_list() -> None:
    assert FOUND == [ADA, CHARLES, MARY]
    assert FOUND[:1] == [ADA]
