"""Documents in groups: where each stands, and that a group changes nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.linking import fit_kernels, groups
from deeped_ray.linking.encoding import EncodedGroup, encode_document
from deeped_ray.linking.groups import Texts, groups_of, lots_of
from deeped_ray.linking.layout_kernels import sort
from deeped_ray.linking.linker import Linker
from deeped_ray.types import Document, Mention


def document(num_mentions: int, *, word: str = "Montreal") -> Document:
    size = len(word) + 1
    mentions = tuple(Mention(i * size, i * size + len(word)) for i in range(num_mentions))
    return Document("", f"{word} " * max(num_mentions, 1), mentions)


def test_mentions_keep_their_words_in_the_text_of_all_documents() -> None:
    texts = Texts.of([document(2), document(3, word="Boston")])
    (group,) = groups_of(texts)
    assert [texts.text[start:end] for start, end in group.spans.tolist()] == group.surfaces
    assert group.surfaces == ["Montreal"] * 2 + ["Boston"] * 3
    assert group.bounds.tolist() == [0, 2, 5]
    assert group.names.tolist() == [0] * 5


def test_a_group_has_no_more_mentions_than_it_may_but_one_window() -> None:
    sizes = [len(group.mentions) for group in groups_of(Texts.of([document(n) for n in (3, 2, 9, 0, 1)]), most=5)]
    assert sizes == [5, 9, 1]


def test_lots_have_all_documents_in_their_order() -> None:
    documents = [document(n) for n in (3, 0, 2, 9, 1)]
    lots = lots_of(documents, most=5)
    assert [[len(each.mentions) for each in lot] for lot in lots] == [[3, 0, 2], [9], [1]]
    assert lots_of([], most=5) == []


def test_lots_of_long_texts_have_fewer_documents() -> None:
    long = Document("", "x" * 5 * groups.CHARACTERS, ())
    assert [len(lot) for lot in lots_of([long, long, document(3)], most=9)] == [1, 2]


def test_long_and_short_documents_get_the_same_bytes_alone_and_together(
    linker: Linker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_JOINT_MENTIONS", 4)
    documents = [document(7), document(0), document(2, word="Boston"), document(5, word="Ottawa")]
    alone = [linker.link_batch([each])[0] for each in documents]
    for most in (1, 6, 100):
        monkeypatch.setattr(groups, "MOST_MENTIONS", most)
        assert linker.link_batch(documents) == alone
        assert linker.link_batch(documents, pause=lambda expected_s=0.0: None) == alone


def test_windows_of_a_group_are_the_documents_it_was_made_of() -> None:
    contexts = [np.array([5, 3]), np.zeros(0, np.int64)]
    made = [
        encode_document(contexts, [[7, 2], [2]], [[0.75, 0.25], [1.0]], [1, -1]),
        encode_document(contexts[1:], [[]], [[]], [-1]),
    ]
    group = EncodedGroup.of(made)
    for number, each in enumerate(made):
        for name in type(group).__slots__:
            if name not in ("layout", "widths"):
                np.testing.assert_array_equal(getattr(group.window(number), name), getattr(each, name))


@given(values=st.lists(st.integers(-5, 2**40), max_size=200))
def test_values_are_sorted(values: list[int]) -> None:
    array = np.array(values, np.int64)
    sort(array)
    assert array.tolist() == sorted(values)


@pytest.mark.parametrize("d", [1, 63, 64, 100, 300, 320])
def test_products_leave_no_number_out(d: int) -> None:
    rng = np.random.default_rng(d)
    own, extra = (rng.standard_normal((number, d), dtype=np.float32) for number in (3, 2))
    x, y = rng.standard_normal((2, d), dtype=np.float32)
    rows, expected = np.array([4, 0, 2, 3, 1]), np.concatenate([own, extra])[[4, 0, 2, 3, 1]]
    first, second = np.empty((2, 5), np.float32)
    fit_kernels.two_products(own, extra, rows, 5, x, y, first, second)
    np.testing.assert_allclose(first, expected @ x, atol=1e-4)
    np.testing.assert_allclose(second, expected @ y, atol=1e-4)
    fit_kernels.products(own, extra, rows, 5, y, first)
    np.testing.assert_allclose(first, expected @ y, atol=1e-4)
