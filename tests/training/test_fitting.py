"""Steps, schedules and what a training document may see."""

from pathlib import Path

import numpy as np
import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import inputs as inputs_module
from deeped_ray.linking.batching import EncodedDocument, encode_document
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.fitting import _learning_rates, encode, num_annotated, steps_of
from deeped_ray.training.history import best_seed, read_history, summarize, write_curves, write_history
from deeped_ray.types import DeepEdError, Document, Mention


def documents_of(sizes: list[int]) -> list[EncodedDocument]:
    nothing = np.zeros(0, np.int64)
    return [encode_document([nothing] * size, [[]] * size, [[]] * size, [-1] * size) for size in sizes]


def test_an_epoch_sees_every_document_once_in_steps_of_similar_size() -> None:
    sizes = np.random.default_rng(0).integers(1, 80, 300).tolist()
    documents = documents_of(sizes)
    steps = steps_of(documents, np.random.default_rng([0, 1]), per_step=4)
    assert sorted(row for step in steps for row in step) == list(range(300))
    spread = [max(sizes[row] for row in step) - min(sizes[row] for row in step) for step in steps]
    assert np.mean(spread) < 10
    assert steps == steps_of(documents, np.random.default_rng([0, 1]), per_step=4)
    assert steps != steps_of(documents, np.random.default_rng([0, 2]), per_step=4)


def test_a_decaying_rate_falls_by_the_same_factor_and_ends_where_it_should() -> None:
    training = TrainingConfig(learning_rate=1e-2, final_learning_rate=1e-4, epochs=4)
    rates = [_learning_rates([], training, epoch) for epoch in range(1, 5)]
    assert rates[0][0] == pytest.approx(1e-2)
    assert rates[-1][1] == pytest.approx(1e-4)
    assert [end for _, end in rates[:-1]] == pytest.approx([begin for begin, _ in rates[1:]])


def test_a_dropping_rate_drops_once_validation_passes_the_threshold() -> None:
    training = TrainingConfig(schedule="drop", learning_rate=1e-4, final_learning_rate=1e-5)
    assert _learning_rates([{"dev_accuracy": 0.89}], training, 7) == (1e-4, 1e-4)
    assert _learning_rates([{"dev_accuracy": 0.91}, {"dev_accuracy": 0.85}], training, 7) == (1e-5, 1e-5)


def test_windows_of_a_long_training_document_teach_every_mention_once(
    corpus_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = LinkerInputs(corpus_kb, CandidateConfig())
    document = max(read_dataset("mini:train"), key=lambda document: len(document.mentions))
    whole = encode([document], inputs)
    monkeypatch.setattr(inputs_module, "MAX_JOINT_MENTIONS", 2)
    windows = encode([document], inputs)
    assert len(windows) > 1
    assert sum(int((window.gold >= 0).sum()) for window in windows) == int((whole[0].gold >= 0).sum())
    assert num_annotated([document]) == len(document.mentions)


def test_a_pruned_gold_entity_can_be_put_back_for_training(corpus_kb: KnowledgeBase) -> None:
    inputs = LinkerInputs(corpus_kb, CandidateConfig(kept_by_prior=1, kept_by_context=0))
    documents = read_dataset("mini:train")
    plain, inserted = (encode(documents, inputs, insert_gold=flag) for flag in (False, True))
    assert sum(int((d.gold >= 0).sum()) for d in inserted) > sum(int((d.gold >= 0).sum()) for d in plain)
    assert max(d.candidates.shape[1] for d in inserted) == 1


def test_a_short_name_gets_the_candidates_of_the_person(corpus_kb: KnowledgeBase) -> None:
    text = "Abraham Lincoln spoke. Lincoln won."
    document = Document("d", text, (Mention(0, 15), Mention(23, 30)))
    whole, short = LinkerInputs(corpus_kb, CandidateConfig()).first_candidates(document)
    assert [candidate.entity_id for candidate in short] == [candidate.entity_id for candidate in whole]
    _, alone = LinkerInputs(corpus_kb, CandidateConfig(coreference="none")).first_candidates(document)
    assert [c.entity_id for c in alone] != [c.entity_id for c in short]


@pytest.mark.parametrize(
    "options",
    [{"seeds": 0}, {"epochs": 0}, {"margin": 0.0}, {"final_learning_rate": 0.0}, {"train_candidates": ("ppr:x",)}],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(DeepEdError):
        TrainingConfig(**options)  # type: ignore[arg-type]


def test_histories_come_back_as_they_were_written(tmp_path: Path) -> None:
    history = [
        {
            "model": kind,
            "seed": seed,
            "epoch": epoch,
            "learning_rate": 1e-3,
            "loss": 1.0 / epoch,
            "dev_accuracy": accuracy,
            "seconds": 1.5,
        }
        for kind in ("local", "global")
        for seed, accuracies in ((0, (0.5, 0.7)), (1, (0.6, 0.65)))
        for epoch, accuracy in enumerate(accuracies, start=1)
    ]
    write_history(history, tmp_path / "history.csv")
    assert read_history(tmp_path / "history.csv") == history
    assert best_seed(history, "local") == 0
    summary = summarize(history)
    assert summary["dev_accuracy"]["global"] == pytest.approx(0.675)
    assert summary["interval"]["global"] == pytest.approx(12.706 * 0.0354 / 2**0.5, rel=1e-2)
    write_curves(history, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
