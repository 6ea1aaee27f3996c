from deeped_ray.text import content_words, is_content_word, normalize_mention, normalize_title, tokenize


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
