"""Probabilities of candidates and of none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking.answers import NOTHING_FITS, reason_of
from deeped_ray.linking.certainty import Certainty, Judged, features
from deeped_ray.linking.encoding import Floats
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.retrieval import NUM_EVIDENCE


def judged(n: int = 5, S: int = 4, *, seed: int = 0, F: int = NUM_EVIDENCE) -> Judged:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, S + 1, n)
    numbers[0] = S
    return Judged(
        [f"Name {number}" for number in range(n)],
        numbers,
        rng.standard_normal((n, S)).astype(np.float32),
        rng.random((n, S)).astype(np.float32),
        rng.standard_normal((n, S)).astype(np.float32),
        rng.random((n, S)).astype(np.float32),
        rng.standard_normal((n, S, F)).astype(np.float32),
    )


def random_networks(num_features: int, *, seed: int = 0) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]]
    shapes = {"0.weight": (3, 16, num_features), "1.weight": (3, 16, 16), "2.weight": (3, 2, 16)}
    shapes |= {"0.bias": (3, 16), "1.bias": (3, 16), "2.bias": (3, 2)}
    weights = {name: (0.3 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return {**weights, "mean": np.zeros(num_features, np.float32), "deviation": np.ones(num_features, np.float32)}


@pytest.fixture
def asked() -> Judged:
    return judged()


@pytest.fixture
def certainty(asked: Judged) -> Certainty:
    return Certainty(random_networks(features(asked).shape[1]))


def test_probabilities_of_all_candidates_and_of_none_add_up_to_1(asked: Judged, certainty: Certainty) -> None:
    found = certainty.judge(asked)
    assert found.candidates.sum(axis=1) + found.none == pytest.approx(1, abs=1e-5)
    assert (found.candidates >= 0).all()


def test_a_mention_without_candidates_means_none(certainty: Certainty) -> None:
    asked = judged()._replace(num_candidates=np.array([4, 0, 1, 0, 2]))
    found = certainty.judge(asked)
    assert found.none[[1, 3]].tolist() == [1, 1]
    assert not found.candidates[[1, 3]].any()
    assert not found.candidates[2, 1:].any()


def test_the_best_candidate_stays_the_best(asked: Judged, certainty: Certainty) -> None:
    found = certainty.judge(asked)
    is_candidate = np.arange(4) < asked.num_candidates[:, None]
    rows = asked.num_candidates > 0
    best = np.where(is_candidate, asked.rho, -np.inf).argmax(axis=1)
    assert (found.candidates.argmax(axis=1) == best)[rows].all()


def test_untrained_networks_leave_the_scores_as_they_are(asked: Judged) -> None:
    zeros = {
        name: np.zeros_like(weight) if name[0].isdigit() else weight
        for name, weight in random_networks(features(asked).shape[1]).items()
    }
    found = Certainty(zeros).judge(asked)
    shares = np.exp(asked.rho[0]) / np.exp(asked.rho[0]).sum()
    assert found.none[0] == 0.5
    assert found.candidates[0] == pytest.approx(0.5 * shares, abs=1e-5)


def test_permuting_mentions_permutes_probabilities(asked: Judged, certainty: Certainty) -> None:
    order = [3, 1, 4, 0, 2]
    arrays: list[Any] = [each[order] for each in asked[1:] if each is not None]
    moved = Judged([asked.surfaces[i] for i in order], *arrays)
    ours, theirs = certainty.judge(asked), certainty.judge(moved)
    assert theirs.candidates == pytest.approx(ours.candidates[order], abs=1e-6)


def test_padding_changes_nothing(asked: Judged, certainty: Certainty) -> None:
    arrays = {name: getattr(asked, name) for name in ("rho", "prior", "psi", "belief", "evidence")}
    wider: Any = {name: np.pad(each, ((0, 0), (0, 3), *[(0, 0)] * (each.ndim - 2))) for name, each in arrays.items()}
    padded = asked._replace(**wider)
    ours, theirs = certainty.judge(asked), certainty.judge(padded)
    assert theirs.candidates[:, :4] == pytest.approx(ours.candidates, abs=1e-6)
    assert theirs.none == pytest.approx(ours.none, abs=1e-6)


def test_a_name_does_not_speak_for_itself(asked: Judged) -> None:
    same = asked._replace(surfaces=["One"] * 5)
    num_others = features(same)[0, -3]
    assert num_others == 0
    assert features(asked)[0, -3] == pytest.approx(np.log1p(4) / 3)


def test_the_prior_is_judged_by_its_logarithms_and_counts() -> None:
    firsts = [[PriorCandidate(7, 0.8, 8.0), PriorCandidate(9, 0.2, 2.0)], []]
    asked = Judged.by_prior(["a", "b"], firsts)
    assert asked.rho[0] == pytest.approx(np.log([0.8, 0.2]), abs=1e-6)
    assert asked.num_candidates.tolist() == [2, 0]
    assert features(asked).shape[0] == 2
    assert not features(asked)[1].any()


def test_damaged_weights_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"Run jobs/train_linker\.py again"):
        Certainty.load(tmp_path / "x.safetensors")


def test_none_is_the_answer_where_it_is_likelier_than_the_best_candidate(linker: Linker) -> None:
    text = "Montreal met Toronto in the Stanley Cup."
    (first, *_) = linker.link(text, [(0, 8)])
    assert first.candidates[0].probability + first.none_probability <= 1
    assert reason_of(0.99, first.candidates[0].probability, "unknown") == NOTHING_FITS.format(0.99)
    assert reason_of(0.01, first.candidates[0].probability, "unknown") is None


def test_every_model_of_a_trained_linker_is_calibrated(linker: Linker, mini_kb: KnowledgeBase) -> None:
    assert linker.certainty is not None
    assert Linker.open(mini_kb, "prior").certainty is not None
    assert Linker.open(mini_kb, "local").certainty is not None
