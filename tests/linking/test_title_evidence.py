import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.embeddings.name_forms import LONGEST_NAME, fold
from deeped_ray.linking.encoding import Floats
from deeped_ray.linking.retrieval import numbered
from deeped_ray.linking.title_evidence import (
    TITLE_MEASURES,
    TitleWords,
    _spelled_words,
    words_in,
    words_of_name,
    words_of_names,
)
from deeped_ray.linking.title_kernels import compare_titles
from deeped_ray.text import hash_tokens


def compared(
    mention: Sequence[int], surfaces: Sequence[str], titles: Sequence[str], shares: Sequence[float], text: str = ""
) -> Floats:
    own = [words_of_name(name) for name in surfaces]
    known = TitleWords(lambda number: titles[number]).take(np.arange(len(titles)))
    measures = np.zeros((len(titles), len(TITLE_MEASURES)), np.float32)
    chosen = np.array(shares, np.float32)
    ends = np.cumsum([0, *map(len, own)])
    places = np.stack([ends[:-1], ends[1:]], axis=1)
    given = (np.array(mention, np.int64), np.concatenate(own), places, *known, words_in(text), numbered(surfaces))
    compare_titles(*given, chosen, measures)
    return measures


def measures(surface: str, title: str, text: str = "") -> dict[str, float]:
    (row,) = compared([0], [surface], [title], [1.0], text)
    return dict(zip(TITLE_MEASURES, row.tolist(), strict=True))


def test_shares_of_letters_by_hand() -> None:
    found = measures("New York", "New York Yankees")
    # 7 of the mention's 7 letters are in the title, and these are 7 of the title's 14
    assert (found["mention in title"], found["title in mention"]) == (1.0, 0.5)


def test_the_qualifier_belongs_to_the_rest_of_the_title() -> None:
    found = measures("Winnebago", "Winnebago County, Iowa", "A district in Iowa.")
    assert found["rest of title"] == pytest.approx(math.log(3) / 2)
    assert found["rest in text"] == pytest.approx(4 / 10)  # `iowa` of `county iowa`


def test_case_marks_and_punctuation_of_the_text_do_not_matter() -> None:
    assert measures("Bayern", "FC Bayern München", "MUNCHEN, F.C.")["rest in text"] == 1


def test_a_title_without_other_words_has_no_rest() -> None:
    found = measures("Leeds", "Leeds", "Leeds")
    assert (found["rest of title"], found["rest in text"], found["siblings"]) == (0, 0, 0)


def siblings(*candidates: tuple[int, str, float], surfaces: list[str]) -> list[float]:
    mention, titles, shares = zip(*candidates, strict=True)
    rows = compared(mention, surfaces, titles, shares)
    found: list[float] = np.expm1(rows[:, TITLE_MEASURES.index("siblings")]).tolist()
    return found


def test_titles_built_alike_support_each_other() -> None:
    counties = siblings(
        (0, "Essex County Cricket Club", 0.2),
        (0, "Essex", 0.8),
        (1, "Kent County Cricket Club", 0.6),
        (2, "Surrey County Cricket Club", 0.5),
        surfaces=["Essex", "Kent", "Surrey"],
    )
    # of each the shares of the other two; a plain title has no siblings
    assert counties == pytest.approx([1.1, 0.0, 0.7, 0.8], abs=1e-5)


def test_a_name_is_no_sibling_of_itself() -> None:
    twice = siblings((0, "Essex County", 0.5), (1, "Essex County", 0.5), surfaces=["Essex", "Essex"])
    assert twice == [0.0, 0.0]


def test_titles_without_a_word_of_the_mention_have_no_siblings() -> None:
    assert siblings((0, "United Nations", 1.0), (1, "United Nations", 1.0), surfaces=["UN", "U.N."]) == [0.0, 0.0]


def test_no_candidates_give_no_rows() -> None:
    assert compared([], ["x"], [], []).shape == (0, len(TITLE_MEASURES))


@given(text=st.text(st.sampled_from("aB9é’'._-\u00a0\u0301 \n東ß\x1c"), max_size=40).map(lambda text: text * 9))
def test_the_words_of_a_text_are_those_that_folding_its_pieces_gives(text: str) -> None:
    chunks = [chunk[at : at + LONGEST_NAME] for chunk in text.split() for at in range(0, len(chunk), LONGEST_NAME)]
    expected = hash_tokens(sorted({word for chunk in chunks for word in fold(chunk).split()}))
    assert {*words_in(text).tolist()} == {*expected.view(np.int64).tolist()}


def test_titles_are_forgotten_when_there_is_no_room_for_more() -> None:
    titles = TitleWords(lambda number: f"Title {number}", size=6)
    for numbers in ([0, 1], [1, 2, 1], [3, 4], [0]):
        words, places = titles.take(np.array(numbers))
        for number, (start, end) in zip(numbers, places.tolist(), strict=True):
            assert words[start:end].tolist() == words_of_name(f"Title {number}").tolist()


@given(names=st.lists(st.text(st.sampled_from("aBof9'._-, ()\t"), max_size=20), max_size=4))
def test_the_words_of_many_names_are_those_of_each(names: list[str]) -> None:
    found = words_of_names([*names, "é", *names])
    for name, rows in zip([*names, "é", *names], found, strict=True):
        assert rows.tolist() == _spelled_words(name).tolist()
