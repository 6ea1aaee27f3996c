import numpy as np
import torch

from deeped_ray.linking.attention import bilinear
from deeped_ray.linking.batching import collate, similar_sizes
from deeped_ray.linking.encoding import encode_document

RNG = np.random.default_rng(0)
WORDS = RNG.standard_normal((20, 4)).astype(np.float32)
ENTITIES = RNG.standard_normal((10, 4)).astype(np.float32)
CONTEXTS = [np.array([3, 5, 3]), np.array([5, 9])]
DOCUMENT = encode_document(CONTEXTS, [[7, 2], [2]], [[0.75, 0.25], [1.0]], [1, -1])
SECOND_ALONE = encode_document(CONTEXTS[1:], [[2]], [[1.0]], [-1])


def test_mentions_refer_to_distinct_words_and_entities() -> None:
    assert DOCUMENT.words[DOCUMENT.context[0]].tolist() == [3, 5, 3]
    assert DOCUMENT.words[DOCUMENT.context[1, :2]].tolist() == [5, 9]
    assert DOCUMENT.entities[DOCUMENT.candidates[0]].tolist() == [7, 2]
    assert DOCUMENT.num_candidates.tolist() == [2, 1]


def test_gathered_scores_are_those_of_the_vectors_themselves() -> None:
    padded = collate([SECOND_ALONE, DOCUMENT], WORDS, ENTITIES).padded
    diagonal = torch.tensor([1.0, 2.0, -1.0, 0.5])
    scores = padded.gather_context(bilinear(padded.entity_vectors, diagonal, padded.word_vectors))
    expected = float((ENTITIES[2] * diagonal.numpy()) @ WORDS[9])
    assert np.isclose(float(scores[1, 1, 0, 1]), expected, atol=1e-5)
    pairs = padded.gather_pairs(bilinear(padded.entity_vectors, diagonal, padded.entity_vectors))
    assert np.isclose(float(pairs[1, 0, 0, 1, 0]), float((ENTITIES[7] * diagonal.numpy()) @ ENTITIES[2]), atol=1e-5)


def test_distinct_words_and_entities_are_gathered_once_and_without_padding() -> None:
    batch = collate([DOCUMENT, SECOND_ALONE], WORDS, ENTITIES)
    assert batch.word_vectors.tolist() == WORDS[[3, 5, 9, 5, 9]].tolist()
    assert batch.entity_vectors.tolist() == ENTITIES[[2, 7, 2]].tolist()


def test_candidates_refer_to_the_vectors_of_all_documents() -> None:
    batch = collate([DOCUMENT, SECOND_ALONE], WORDS, ENTITIES)
    assert batch.entity_vectors[batch.candidates[0, 0]].tolist() == ENTITIES[[7, 2]].tolist()
    assert batch.entity_vectors[batch.candidates[1, 0, 0]].tolist() == ENTITIES[2].tolist()


def test_a_document_comes_back_with_its_own_vectors() -> None:
    _, (document, entities, words) = collate([DOCUMENT, SECOND_ALONE], WORDS, ENTITIES).one_by_one()
    assert document is SECOND_ALONE
    assert (entities.tolist(), words.tolist()) == (ENTITIES[[2]].tolist(), WORDS[[5, 9]].tolist())


def test_scores_of_documents_of_different_size_are_padded() -> None:
    batch = collate([DOCUMENT, SECOND_ALONE], WORDS, ENTITIES)
    assert batch.is_candidate.tolist() == [[[True, True], [True, False]], [[True, False], [False, False]]]
    assert batch.gold.tolist() == [[1, -1], [-1, -1]]


def test_a_document_without_candidates_gives_a_batch_without_candidates() -> None:
    batch = collate([encode_document([np.zeros(0, np.int64)], [[]], [[]], [-1])], WORDS, ENTITIES)
    assert not batch.is_candidate.any()
    assert batch.padded.candidates.shape == (1, 1, 1)


def test_documents_of_similar_size_go_together() -> None:
    documents = [DOCUMENT, SECOND_ALONE, DOCUMENT, SECOND_ALONE, DOCUMENT]
    assert similar_sizes(documents, per_batch=2) == [[1, 3], [0, 2], [4]]


def test_floats_are_converted_and_indices_are_not() -> None:
    batch = collate([DOCUMENT], WORDS, ENTITIES).to(torch.float64)
    assert batch.word_vectors.dtype == torch.float64
    assert batch.candidates.dtype == torch.int64
