import json
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from deeped_ray.serving.rel import rel_work, write_rel
from deeped_ray.types import Candidate, Prediction

TEXT = "🦄 Ada went to Paris."


def test_spans_are_given_by_start_and_length() -> None:
    (asked,) = rel_work(json.dumps({"text": TEXT, "spans": [[2, 3], [14, 5]]}).encode()).texts
    assert (asked.text, asked.spans) == (TEXT, [(2, 5), (14, 19)])


@pytest.mark.parametrize("spans", [{}, {"spans": []}, {"spans": None}, {"tagger": "ner-fast"}])
def test_without_spans_mentions_are_to_be_found(spans: dict[str, Any]) -> None:
    (asked,) = rel_work(json.dumps({"text": TEXT, **spans}).encode()).texts
    assert (asked.text, asked.spans) == (TEXT, None)


def test_spans_that_overlap_become_texts_of_their_own() -> None:
    work = rel_work(json.dumps({"text": TEXT, "spans": [[2, 3], [14, 5], [2, 1]]}).encode())
    assert [asked.spans for asked in work.texts] == [[(2, 5)], [(2, 3), (14, 19)]]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"text": "\ud83e"},
        {"text": "t" * 1_000_001},
        {"text": TEXT, "spans": [[-1, 3]]},
        {"text": TEXT, "spans": [[1, 2, 3]]},
        {"text": TEXT, "spans": [[0, 1]] * 10_001},
    ],
    ids=str,
)
def test_bad_requests_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(RequestValidationError):
        rel_work(json.dumps(bad).encode())


def test_answers_leave_out_mentions_without_entity() -> None:
    ada = Candidate("Ada Lovelace", 7, "", prior=0.5, local=0.0, coherence=0.0, score=1.0, probability=0.75)
    predictions = [Prediction(2, 5, "Ada", (ada,)), Prediction(14, 19, "Paris", reason="no entity is known")]
    assert b"".join(write_rel([predictions[1:], predictions[:1]])) == b'[[2,3,"Ada","Ada_Lovelace",0.75,0.0,"NULL"]]'
