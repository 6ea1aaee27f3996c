import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig, KnownWords, select_candidates
from deeped_ray.text import tokenize
from deeped_ray.types import DeepEdError, Mention

PAPER = CandidateConfig(sources="prior", evidence="prior")
TEXT = "rugby guitar the planet Queen chess bishop orchard"


@pytest.fixture(scope="module")
def words(corpus_kb: KnowledgeBase) -> Words:
    return Words(corpus_kb.open("words"))


def test_contexts_hold_the_nearest_known_words_of_each_side(words: Words) -> None:
    known = KnownWords(TEXT, words)
    mention = Mention(TEXT.index("Queen"), TEXT.index("Queen") + 5)
    assert words.take(known.around(mention, num_words=4)) == ["guitar", "planet", "chess", "bishop"]
    assert words.take(known.around(Mention(0, 5), num_words=4)) == ["guitar", "planet"]


@given(text=st.text(st.sampled_from("aB9é\u0301 -東京はカタไทย"), max_size=30))
def test_words_are_those_of_the_tokenizer(words: Words, text: str) -> None:
    text = f"rugby {text} guitar"
    tokens = [(words.find(token.word), token.start) for token in tokenize(text)]
    for _ in range(2):  # the second time, they are remembered
        known = KnownWords(text, words)
        assert [*zip(known.rows.tolist(), known._starts.tolist(), strict=True)] == [
            token for token in tokens if token[0] is not None
        ]


# the later the rarer
TEN = [PriorCandidate(entity_id, 0.2 - entity_id / 100, 20 - entity_id) for entity_id in range(10)]


def test_four_by_prior_and_three_by_context(words: Words) -> None:
    entity_vectors = np.zeros((10, words.vectors.shape[1]), dtype=np.float32)
    row = words.find("rugby")
    assert row is not None
    entity_vectors[[9, 7, 0]] = words.vectors[row]
    (chosen,) = select_candidates([TEN], [np.array([row])], words.vectors, entity_vectors, PAPER)
    # 0 is there by prior already; 4 is the first of those with equal similarity
    assert [candidate.entity_id for candidate in chosen] == [0, 1, 2, 3, 4, 7, 9]


def test_mentions_are_pruned_each_by_its_own_context(words: Words) -> None:
    rugby, guitar = words.find("rugby"), words.find("guitar")
    assert rugby is not None
    assert guitar is not None
    entity_vectors = np.zeros((10, words.vectors.shape[1]), dtype=np.float32)
    entity_vectors[8], entity_vectors[9] = words.vectors[rugby], words.vectors[guitar]
    contexts = [np.array([rugby]), np.array([guitar]), np.array([rugby, guitar])]
    config = CandidateConfig(kept_by_prior=1, kept_by_context=1)
    chosen = select_candidates([TEN, TEN, TEN[:2]], contexts, words.vectors, entity_vectors, config)
    assert [[candidate.entity_id for candidate in kept] for kept in chosen] == [[0, 8], [0, 9], [0, 1]]


def test_without_context_the_prior_decides(words: Words) -> None:
    entity_vectors = np.zeros((10, words.vectors.shape[1]), dtype=np.float32)
    (chosen,) = select_candidates([TEN], [np.zeros(0, np.int64)], words.vectors, entity_vectors, PAPER)
    assert [candidate.entity_id for candidate in chosen] == list(range(7))


def test_keeping_no_candidate_is_refused() -> None:
    with pytest.raises(DeepEdError):
        CandidateConfig(kept_by_prior=0, kept_by_context=0)
