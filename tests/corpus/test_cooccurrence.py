from collections import Counter
from pathlib import Path

from deeped_ray.artifacts import Part
from deeped_ray.corpus.cooccurrence import WordCounts, link_words, page_words, write_counts
from deeped_ray.text import tokenize
from deeped_ray.types import Link, Page

TEXT = "Golden apples ripen while Queen plays loud music near orchards"


def test_link_windows_leave_out_the_link_and_count_before_dropping_stop_words() -> None:
    link = Link(TEXT.index("Queen"), TEXT.index("Queen") + 5, "Queen (band)")
    words = link_words(list(tokenize(TEXT)), link, window=6)
    assert words == ["apples", "ripen", "plays", "loud", "music"]  # `while` takes a place but carries nothing


def test_windows_end_with_the_text() -> None:
    link = Link(0, len("Golden apples"), "Apple")
    assert link_words(list(tokenize(TEXT)), link, window=4) == ["ripen"]


def test_title_words_count_as_page_words() -> None:
    assert page_words(Page(1, "Queen (band)", "They rock.")) == ["Queen", "band", "rock"]


def test_counts_are_read_back_by_entity(tmp_path: Path) -> None:
    write_counts(tmp_path, "page_words", {2: Counter({7: 1, 3: 5}), 0: Counter({1: 2})}, num_entities=4)
    counts = WordCounts(Part("corpus", "0", tmp_path, {}), "page_words")
    assert [row.tolist() for row in counts[2]] == [[3, 7], [5, 1]]
    assert [row.tolist() for row in counts[1]] == [[], []]
