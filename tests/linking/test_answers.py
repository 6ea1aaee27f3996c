"""Answers in columns against the predictions made of them."""

import numpy as np
import pytest

from deeped_ray.linking import groups as groups_module
from deeped_ray.linking.answers import Answers
from deeped_ray.linking.linker import Linker
from deeped_ray.types import Document, Mention

TEXT = "Montreal met Toronto in the Stanley Cup; the National Hockey League saw Zorblatt."


@pytest.fixture(scope="module")
def answers(linker: Linker) -> Answers:
    spans = [(13, 20), (0, 8), (28, 39), (45, 67), (72, 80)]
    (found,) = linker.link_batch([linker.document(TEXT, spans)])
    return found


def test_answers_are_a_sequence_of_predictions(answers: Answers) -> None:
    assert [answer.surface for answer in answers] == [TEXT[m.start : m.end] for m in answers.document.mentions]
    assert answers[1:3] == [answers[1], answers[2]]
    assert answers[-1].surface == "Zorblatt"
    assert answers == [*answers]


def test_columns_hold_what_predictions_say(answers: Answers) -> None:
    (columns,) = answers.windows
    by_place = {place: row for row, place in enumerate(columns.mention.tolist())}
    for place, answer in enumerate(answers):
        row = by_place[place]
        start, end = columns.offsets[row : row + 2].tolist()
        assert columns.numbers[3, start:end].tolist() == [candidate.score for candidate in answer.candidates]
        assert columns.none[row] == answer.none_probability
        assert (answers.reasons[place] is None) == (answer.entity is not None)


def test_only_as_many_candidates_are_made_as_are_asked_for(answers: Answers) -> None:
    few = answers.at_least(0.0, top=1)
    assert [answer.candidates for answer in few] == [answer.candidates[:1] for answer in answers]
    assert [answer.entity for answer in few] == [answer.entity for answer in answers]
    assert [answer.entity for answer in answers.at_least(0.0, top=0)] == [answer.entity for answer in answers]


def test_a_threshold_gives_what_each_prediction_would(answers: Answers) -> None:
    for threshold in (0.5, 0.9, 1.0):
        assert answers.at_least(threshold) == [answer.at_least(threshold) for answer in answers]


def test_numbers_have_six_digits(answers: Answers) -> None:
    (columns,) = answers.windows
    assert (columns.numbers == columns.numbers.round(6)).all()


def test_a_document_in_windows_answers_in_the_order_of_its_mentions(
    linker: Linker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "MAX_JOINT_MENTIONS", 4)
    places = np.random.default_rng(0).permutation(9) * 22
    document = Document("", "Montreal met Toronto. " * 9, tuple(Mention(start, start + 8) for start in places.tolist()))
    (found,) = linker.link_batch([document])
    assert len(found.windows) > 1
    assert [answer.start for answer in found] == places.tolist()
    assert {answer.surface for answer in found} == {"Montreal"}
    assert all(0 <= place < 9 for answer in found for place, _ in answer.support)
