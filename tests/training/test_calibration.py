"""Fitting how sure a model may be."""

from typing import Any

import numpy as np
import pytest

from deeped_ray.evaluation.certainty import answers as judged_answers
from deeped_ray.linking.certainty import Certainty
from deeped_ray.linking.encoding import EncodedDocument, Floats
from deeped_ray.training.calibration import Answers, fit, is_taken_out, joined, passages_of, without_gold
from deeped_ray.types import Document, Mention


def synthetic(n: int, *, seed: int = 0) -> Answers:
    """The scores say nothing; the second feature says how likely it is that none is right."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    rho = rng.standard_normal((n, 3)).astype(np.float32)
    shares = np.exp(rho) / np.exp(rho).sum(axis=1, keepdims=True)
    gold = np.array([rng.choice(3, p=share / share.sum()) for share in shares.astype(np.float64)])
    is_none = rng.random(n) < 1 / (1 + np.exp(-2 * x[:, 1]))
    return Answers(x, rho, np.where(is_none, 3, gold), np.ones(n, np.float32))


def probabilities(weights: dict[str, Floats], rows: Answers) -> tuple[Any, Any]:
    """P(none), and the probabilities of the candidates, by the networks alone."""
    outputs = Certainty(weights).outputs(rows.x)
    none = 1 / (1 + np.exp(-outputs[:, 0]))
    scaled = np.log1p(np.exp(outputs[:, 1:] + np.log(np.expm1(1.0)))) * rows.rho
    shares = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
    return none, (1 - none)[:, None] * shares


def test_fitted_probabilities_are_calibrated_on_rows_they_have_not_seen() -> None:
    weights, unseen = fit(synthetic(4000)), synthetic(4000, seed=1)
    none, candidates = probabilities(weights, unseen)
    right = candidates.argmax(axis=1) == unseen.gold
    rows = zip(
        candidates.max(axis=1).tolist(), right.tolist(), (none > 0.5).tolist(), (unseen.gold == 3).tolist(), strict=True
    )
    found = judged_answers(list(rows))
    assert found.ece is not None
    assert found.ece < 0.05
    assert found.nil[2] is not None
    assert found.nil[2] > 0.7


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second = fit(synthetic(300), seed=3), fit(synthetic(300), seed=3)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("gold", [0, 3])
def test_rows_of_one_class_give_finite_probabilities(gold: int) -> None:
    rows = synthetic(60)._replace(gold=np.full(60, gold))
    none, candidates = probabilities(fit(rows), rows)
    assert np.isfinite(none).all()
    assert (none.mean() > 0.5) == (gold == 3)
    assert (candidates <= 1).all()


def test_nothing_to_fit_to_is_no_error() -> None:
    assert len(joined([]).gold) == 0


def test_taking_the_gold_entity_out_moves_the_others_up() -> None:
    document = EncodedDocument(
        words=np.zeros(1, np.int64),
        entities=np.arange(4),
        context=np.zeros((2, 1), np.int64),
        num_words=np.zeros(2, np.int64),
        candidates=np.array([[0, 1, 2], [3, 2, 1]]),
        num_candidates=np.array([3, 2]),
        prior=np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]], np.float32),
        evidence=np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        sources=np.zeros((2, 3), np.int8),
        gold=np.array([1, 0]),
    )
    found = without_gold(document, np.array([True, False]))
    assert found.candidates[0, :2].tolist() == [0, 2]
    assert found.prior[0, :2].tolist() == pytest.approx([0.5, 0.2])
    assert found.evidence[0, 1].tolist() == [4, 5]
    assert found.num_candidates.tolist() == [2, 2]
    assert found.gold.tolist() == [-1, 0]
    assert found.candidates[1].tolist() == [3, 2, 1]


def test_rare_entities_are_taken_out_more_often() -> None:
    shares = [
        np.mean([is_taken_out(entity, np.full(4000, links)) for entity in range(4000)]) for links in (1, 10, 1000)
    ]
    assert shares == pytest.approx([0.5, 0.25, 0.1], abs=0.03)


def test_passages_hold_whole_words_and_the_mentions_in_them() -> None:
    names = [f"Name{number}" for number in range(40)]
    text = " and ".join(names)
    starts = [text.index(name + " ") if number < 39 else text.index(name) for number, name in enumerate(names)]
    mentions = tuple(Mention(start, start + len(name), name) for start, name in zip(starts, names, strict=True))
    passages = passages_of(Document("d", text, mentions))
    assert len(passages) == 2
    for passage in passages:
        assert passage.text in text
        assert 1 <= len(passage.mentions) < 40
        assert [passage.surface(mention) for mention in passage.mentions] == [each.gold for each in passage.mentions]
    assert passages == passages_of(Document("d", text, mentions))
    assert passages_of(Document("d", text, ())) == []
