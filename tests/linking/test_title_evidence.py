import math

import numpy as np
import pytest

from deeped_ray.linking.title_evidence import TITLE_MEASURES, Named, compare_titles, words_in

SHARES = np.ones(1, np.float32)


def measures(surface: str, title: str, text: str = "") -> dict[str, float]:
    (row,) = compare_titles(np.zeros(1, np.int64), Named.of([surface]), [title], SHARES, words_in(text))
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
    rows = compare_titles(np.array(mention), Named.of(surfaces), titles, np.array(shares, np.float32), words_in(""))
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
    assert compare_titles(np.zeros(0, np.int64), Named.of(["x"]), [], SHARES[:0], words_in("")).shape == (
        0,
        len(TITLE_MEASURES),
    )
