"""Steps, schedules and what a training document may see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import groups as groups_module
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelKind
from deeped_ray.linking.encoding import EncodedDocument, encode_document
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, learning_rates, steps_of
from deeped_ray.training.history import Validation, best_seed, read_history, summarize, write_curves, write_history
from deeped_ray.types import DeepEdError, Document, Mention


def documents_of(sizes: list[int]) -> list[EncodedDocument]:
    nothing = np.zeros(0, np.int64)
    return [encode_document([nothing] * size, [[]] * size, [[]] * size, [-1] * size) for size in sizes]


def validation(accuracy: float, *, model: ModelKind = "local", seed: int = 0, epoch: int = 1) -> Validation:
    return Validation(model, seed, epoch, learning_rate=1e-3, loss=1 / epoch, dev_accuracy=accuracy, seconds=1.5)


def num_taught(examples: Examples) -> int:
    return sum(int((document.gold >= 0).sum()) for document in examples.train)


def test_an_epoch_sees_every_document_once_in_steps_of_similar_size() -> None:
    documents = documents_of(np.random.default_rng(0).integers(1, 80, 300).tolist())
    steps = steps_of(documents, np.random.default_rng([0, 1]), per_step=4)
    assert sorted(id(document) for step in steps for document in step) == sorted(map(id, documents))
    assert np.mean([len(max(step, key=len)) - len(min(step, key=len)) for step in steps]) < 10


def test_the_order_of_documents_depends_on_seed_and_epoch() -> None:
    documents = documents_of([1] * 50)
    first, again, second = (
        [id(document) for step in steps_of(documents, np.random.default_rng(seed), per_step=4) for document in step]
        for seed in ([0, 1], [0, 1], [0, 2])
    )
    assert first == again
    assert first != second


def test_a_decaying_rate_falls_by_the_same_factor_and_ends_where_it_should() -> None:
    training = TrainingConfig(learning_rate=1e-2, final_learning_rate=1e-4, epochs=4)
    rates = [learning_rates([], training, epoch) for epoch in range(1, 5)]
    assert rates[0][0] == pytest.approx(1e-2)
    assert rates[-1][1] == pytest.approx(1e-4)
    assert [end for _, end in rates[:-1]] == pytest.approx([begin for begin, _ in rates[1:]])


def test_a_dropping_rate_drops_once_validation_passes_the_threshold() -> None:
    training = TrainingConfig(schedule="drop", learning_rate=1e-4, final_learning_rate=1e-5)
    assert learning_rates([validation(0.89)], training, 7) == (1e-4, 1e-4)
    assert learning_rates([validation(0.91), validation(0.85)], training, 7) == (1e-5, 1e-5)


def test_windows_of_a_long_training_document_teach_every_mention_once(
    corpus_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = LinkerInputs(corpus_kb, CandidateConfig())
    document = max(read_dataset("mini:train"), key=lambda document: len(document.mentions))
    whole = Examples.of(TrainingDocuments.of([document], [document]), inputs)
    monkeypatch.setattr(groups_module, "MAX_JOINT_MENTIONS", 2)
    windows = Examples.of(TrainingDocuments.of([document], [document]), inputs)
    assert len(windows.train) > len(whole.train) == 1
    assert num_taught(windows) == num_taught(whole)
    assert windows.num_dev_mentions == len(document.mentions)


PAPER = CandidateConfig(sources="prior", evidence="prior", kept_by_prior=1, kept_by_context=0)


def test_a_pruned_gold_entity_can_be_put_back_for_training(corpus_kb: KnowledgeBase) -> None:
    inputs = LinkerInputs(corpus_kb, PAPER)
    documents = read_dataset("mini:train")
    plain, inserted = (
        Examples.of(TrainingDocuments.of(documents, []), inputs, insert_gold=flag) for flag in (False, True)
    )
    assert num_taught(inserted) > num_taught(plain)
    assert max(document.candidates.shape[1] for document in inserted.train) == 1


def test_a_short_name_gets_the_candidates_of_the_person(corpus_kb: KnowledgeBase) -> None:
    text = "Abraham Lincoln spoke. Lincoln won."
    document = Document("d", text, (Mention(0, 15), Mention(23, 30)))
    whole, short = LinkerInputs(corpus_kb, CandidateConfig()).first_candidates(document)
    assert [candidate.entity_id for candidate in short] == [candidate.entity_id for candidate in whole]
    _, alone = LinkerInputs(corpus_kb, CandidateConfig(coreference="none")).first_candidates(document)
    assert [c.entity_id for c in alone] != [c.entity_id for c in short]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "`seeds` must be at least 1, not 0"),
        ({"epochs": 0}, "`epochs` must be at least 1, not 0"),
        ({"margin": 0.0}, "`margin` must be above 0"),
        ({"final_learning_rate": 0.0}, "`final_learning_rate` must be above 0"),
        ({"learning_rate": -1.0}, "`learning_rate` must be at least 0"),
        ({"train_candidates": ("ppr:x",)}, "but not `dev_candidates`"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepEdError, match=message):
        TrainingConfig(**options)


HISTORY = [
    validation(accuracy, model=model, seed=seed, epoch=epoch)
    for model in ("local", "global")
    for seed, accuracies in ((0, (0.5, 0.7)), (1, (0.6, 0.65)))
    for epoch, accuracy in enumerate(accuracies, start=1)
]


def test_histories_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path / "history.csv")
    assert read_history(tmp_path / "history.csv") == HISTORY


def test_a_summary_has_the_mean_over_seeds_and_its_interval() -> None:
    summary = summarize(HISTORY)
    assert summary["dev_accuracy"]["global"] == pytest.approx(0.675)
    assert summary["interval"]["global"] == pytest.approx(12.706 * 0.0354 / 2**0.5, rel=1e-2)
    assert best_seed(HISTORY, "local") == 0


def test_curves_are_a_picture(tmp_path: Path) -> None:
    write_curves(HISTORY, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
