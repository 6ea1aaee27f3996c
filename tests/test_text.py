import itertools
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.text import (
    _MARKS,
    UNSPACED,
    Spans,
    content_words,
    hash_tokens,
    is_content_word,
    normalize_mention,
    normalize_title,
    tokenize,
    unit_spans,
    word_spans,
    words_of,
)

_LETTER = rf"(?![{UNSPACED}])\w"
_UNIT = re.compile(rf"{_LETTER}(?:{_LETTER}|[{_MARKS}])*|\w|[^\w\s]|[\n\r\v\f\x85\u2028\u2029]")
TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("a1_ .\n\u0301\u0308é\u0915\u093f\u05e9\u05b8\u2029東京都のはラーกิ々〇"))
)


def places(spans: Spans) -> list[tuple[int, int]]:
    return list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))


def test_tokens_are_unicode_word_runs_with_offsets() -> None:
    text = "Pelé's U.S. tour, 1975"
    assert [token.word for token in tokenize(text)] == ["Pelé", "s", "U", "S", "tour", "1975"]
    assert all(text[token.start : token.end] == token.word for token in tokenize(text))


def test_stop_words_numbers_and_single_letters_are_no_content() -> None:
    assert content_words("The 7 of a Queen in 1975") == ["Queen"]
    assert not is_content_word("THE")


def test_titles_follow_mediawiki() -> None:
    assert normalize_title(" apple_Inc. ") == "Apple Inc."
    assert normalize_title("e\u0301cole") == "\u00c9cole"
    assert normalize_title("") == ""


def test_mentions_keep_their_case() -> None:
    assert normalize_mention(" new\n York ") == "new York"


@settings(max_examples=200)
@given(TEXTS)
def test_words_in_bulk_are_those_of_the_plain_tokenizer(text: str) -> None:
    spans, tokens = word_spans(text), list(tokenize(text))
    assert places(spans) == [(token.start, token.end) for token in tokens]
    assert spans.hashes.tolist() == hash_tokens([token.word for token in tokens]).tolist()


@settings(max_examples=200)
@given(TEXTS)
def test_units_are_those_of_the_pattern_and_equal_ones_have_equal_hashes(text: str) -> None:
    units = unit_spans(text)
    assert places(units) == [match.span() for match in _UNIT.finditer(text)]
    strings = [text[start:end] for start, end in places(units)]
    assert hash_tokens(strings).tolist() == units.hashes.tolist()
    assert len(set(strings)) == len(set(units.hashes.tolist()))


def test_units_know_whether_white_space_stands_before_them() -> None:
    assert unit_spans("U.S. is").is_spaced.tolist() == [True, False, False, False, True]


def test_scripts_without_spaces_are_cut_into_words_and_their_characters_are_units() -> None:
    text = "東京都のラーメン店Tokyo"
    assert words_of(text) == ["東京", "都", "の", "ラーメン", "店", "Tokyo"]
    assert [text[start:end] for start, end in places(unit_spans(text))] == [*"東京都のラーメン店", "Tokyo"]


def test_combining_marks_stay_with_their_letters() -> None:
    for text in ("नई दिल्ली भारत", "שָׁלוֹם עוֹלָם", "مُحَمَّد العربية", "বাংলা ভাষা", "தமிழ்நாடு", "Zu\u0308rich e\u0301t"):
        assert words_of(text) == text.split()
        assert places(word_spans(text)) == places(unit_spans(text))
    assert words_of("\u0301abc") == ["abc"]


def test_hashes_of_words_differ() -> None:
    words = [
        "".join(letters) for size in range(1, 5) for letters in itertools.product("abcdAB\u0416\u4e2d", repeat=size)
    ]
    hashes = hash_tokens(words)
    assert len(np.unique(hashes)) == len(words)
    assert len(np.unique(hashes >> np.uint64(40))) > 0.99 * len(
        words
    )  # the bits that beginnings of mentions are kept by


def test_words_of_plain_ascii_are_those_of_any_text() -> None:
    text = "".join(f"{a}{b}x {a}1" for a in map(chr, range(128)) for b in "a_ .'")
    assert words_of(text) == words_of(f"{text} é")[:-1]
