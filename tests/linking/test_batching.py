import numpy as np
import torch

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.linking.attention import bilinear
from deeped_ray.linking.batching import EncodedMention, collate

RNG = np.random.default_rng(0)
WORDS = RNG.standard_normal((20, 4)).astype(np.float32)
ENTITIES = RNG.standard_normal((10, 4)).astype(np.float32)
DOCUMENT = [
    EncodedMention([3, 5, 3], [PriorCandidate(7, 0.75, 3), PriorCandidate(2, 0.25, 1)], gold=1),
    EncodedMention([5, 9], [PriorCandidate(2, 1.0, 4)]),
]


def test_gathered_scores_are_those_of_the_vectors_themselves() -> None:
    batch = collate([DOCUMENT], WORDS, ENTITIES)
    diagonal = torch.tensor([1.0, 2.0, -1.0, 0.5])
    scores = batch.gather_context(bilinear(batch.entity_vectors, diagonal, batch.word_vectors))
    expected = float((ENTITIES[2] * diagonal.numpy()) @ WORDS[9])
    assert np.isclose(float(scores[0, 1, 0, 1]), expected, atol=1e-5)
    pairs = batch.gather_pairs(bilinear(batch.entity_vectors, diagonal, batch.entity_vectors))
    assert np.isclose(float(pairs[0, 0, 0, 1, 0]), float((ENTITIES[7] * diagonal.numpy()) @ ENTITIES[2]), atol=1e-5)


def test_distinct_words_and_entities_are_gathered_once() -> None:
    batch = collate([DOCUMENT], WORDS, ENTITIES)
    assert batch.word_vectors.shape == (1, 3, 4)
    assert batch.entity_vectors.shape == (1, 2, 4)


def test_documents_of_different_size_are_padded() -> None:
    batch = collate([DOCUMENT, DOCUMENT[1:]], WORDS, ENTITIES)
    assert batch.is_candidate.tolist() == [[[True, True], [True, False]], [[True, False], [False, False]]]
    assert batch.gold.tolist() == [[1, -1], [-1, -1]]


def test_a_document_without_mentions_gives_a_batch_without_candidates() -> None:
    batch = collate([[]], WORDS, ENTITIES)
    assert not batch.is_candidate.any()
    assert batch.candidates.shape == (1, 1, 1)
