"""Fitting on the mini documents: a golden run, and resuming. faults/test_training.py has workers of Ray Train."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import Linker
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.training import trainer
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import DeepEdError
from tests.conftest import MINI_TRAINING, copy_of, fitting_here

pytestmark = pytest.mark.usefixtures("local_ray_session")
SHORT = TrainingConfig(epochs=4, validate_every=2, documents_per_step=8, learning_rate=3e-3)
GLOBAL = FitName("global", 0)
DEFAULT = ModelConfig()


@pytest.fixture(scope="module")
def examples(corpus_kb: KnowledgeBase) -> Examples:
    inputs = LinkerInputs(corpus_kb, CandidateConfig())
    return Examples.of(TrainingDocuments.of(read_dataset("mini:train"), read_dataset("mini:dev")), inputs)


def fit(examples: Examples, training: TrainingConfig, run: Run | None = None, model: ModelConfig = DEFAULT) -> Run:
    run = run or Run()
    for _ in Fit(GLOBAL, examples, training, model, run).validations():
        pass
    return run


def test_context_and_coherence_beat_the_prior(mini_kb: KnowledgeBase) -> None:
    reports = evaluate(mini_kb, EvaluationConfig())
    accuracy: dict[str, float] = {report.model: report.result.scores.accuracy for report in reports}
    assert accuracy["prior"] == pytest.approx(0.540, abs=0.005)
    # another machine rounds otherwise: a few of 235 mentions may fall to the other side
    assert accuracy["local"] == pytest.approx(0.775, abs=0.03)
    assert accuracy["global"] == pytest.approx(0.755, abs=0.03)


def test_some_documents_only_joint_inference_gets_right(mini_kb: KnowledgeBase) -> None:
    """Documents the models were not fitted on, all of whose mentions the global model solves and no other does."""
    solved: dict[str, set[str]] = {}
    for kind in ("prior", "local", "global"):
        linker = Linker.open(mini_kb, kind)
        for document in read_dataset("mini:dev") + read_dataset("mini:test"):
            answers = linker.link_batch([document])[0]
            if all(a.entity and a.entity.title == m.gold for a, m in zip(answers, document.mentions, strict=True)):
                solved.setdefault(kind, set()).add(document.name)
    assert solved["global"] - solved["local"] - solved["prior"]


def test_a_resumed_fit_ends_with_the_same_weights(examples: Examples, tmp_path: Path) -> None:
    steady = replace(SHORT, schedule="drop")  # a decay would depend on the number of epochs
    whole = fit(examples, steady)
    fit(examples, replace(steady, epochs=2)).save(tmp_path)
    resumed = fit(examples, steady, Run.load(tmp_path))
    assert [row.epoch for row in resumed.history] == [2, 4]
    assert [row._replace(seconds=0) for row in resumed.history] == [row._replace(seconds=0) for row in whole.history]
    for name, tensor in whole.tensors["global.0.last"].items():
        assert torch.equal(resumed.tensors["global.0.last"][name], tensor)


def test_fitting_lowers_the_loss_and_keeps_f_within_bounds(examples: Examples) -> None:
    run = fit(examples, replace(SHORT, epochs=10), model=ModelConfig(max_norm=1.0))
    assert run.history[-1].loss < run.history[0].loss
    weights = {name: tensor for name, tensor in run.tensors["global.0.last"].items() if name.startswith("f.")}
    assert len(weights) == 6
    assert all(tensor.norm() <= 1 + 1e-5 for tensor in weights.values())


def test_a_fit_that_stops_improving_ends_after_its_patience(examples: Examples) -> None:
    # a learning rate of zero never improves on the first validation
    still = TrainingConfig(epochs=50, patience=3, learning_rate=0.0, documents_per_step=72)
    assert [row.epoch for row in fit(examples, still).history] == [1, 2, 3, 4]


def test_the_late_learning_rate_follows_the_validations(examples: Examples) -> None:
    late = TrainingConfig(epochs=3, schedule="drop", late_accuracy=0.0, final_learning_rate=1e-12)
    losses = [row.loss for row in fit(examples, late).history]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_a_linker_that_is_there_already_is_not_trained_again(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb, training = copy_of(corpus_kb, tmp_path / "kb"), TrainingConfig(model="local", epochs=1, documents_per_step=36)
    with fitting_here(tmp_path / "checkpoint"):
        made = train_linker(kb, training, ModelConfig(), CandidateConfig(), WorkerConfig())
    assert not list((kb.root / "runs").iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(trainer, "_fit_on_ray")
        assert train_linker(kb, training, ModelConfig(), CandidateConfig(), WorkerConfig()) == made


def test_a_run_of_another_configuration_is_not_taken_up(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    resume = ResumeConfig(storage_path=str(tmp_path), run_name="same")
    folders = {resume.folder(corpus_kb, "train", {"seed": seed}) for seed in (1, 2)}
    assert len(folders) == 2


def test_a_bad_training_file_is_named_before_a_worker_starts(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("no document\n")
    training = replace(MINI_TRAINING, train=(f"aida:{tmp_path / 'bad.tsv'}",), dev=("mini:dev",))
    with pytest.raises(DeepEdError, match=r"bad\.tsv, line 1"):
        train_linker(corpus_kb, training, ModelConfig(), CandidateConfig(), WorkerConfig())
    assert not list((corpus_kb.root / "parts").glob(".new-*"))


def test_gold_entities_are_put_back_only_among_the_paper_s_candidates(corpus_kb: KnowledgeBase) -> None:
    training = TrainingConfig(insert_gold=True)
    with pytest.raises(DeepEdError, match="set `sources` and `evidence` to prior"):
        train_linker(corpus_kb, training, ModelConfig(), CandidateConfig(), WorkerConfig())
