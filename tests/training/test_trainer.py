"""Fitting on the mini documents: a golden run, resuming, and data-parallel workers."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.batching import EncodedDocument
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.model import ModelConfig
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.fitting import FitName, Run, encode, fit_model, num_annotated
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import DeepEdError
from tests.conftest import MINI_TRAINING

SHORT = TrainingConfig(epochs=4, validate_every=2, documents_per_step=8, learning_rate=3e-3)
CPU = torch.device("cpu")
GLOBAL = FitName("global", 0)
DEFAULT = ModelConfig()


@pytest.fixture(scope="module")
def inputs(corpus_kb: KnowledgeBase) -> LinkerInputs:
    return LinkerInputs(corpus_kb, CandidateConfig())


@pytest.fixture(scope="module")
def documents(inputs: LinkerInputs) -> dict[str, list[EncodedDocument]]:
    return {split: encode(read_dataset(f"mini:{split}"), inputs) for split in ("train", "dev")}


def fit(
    inputs: LinkerInputs,
    documents: dict[str, list[EncodedDocument]],
    training: TrainingConfig,
    run: Run | None = None,
    model: ModelConfig = DEFAULT,
) -> Run:
    run = run or Run()
    num_dev = num_annotated(read_dataset("mini:dev"))
    for _ in fit_model(
        GLOBAL,
        **documents,
        inputs=inputs,
        training=training,
        model_config=model,
        run=run,
        num_dev_mentions=num_dev,
        device=CPU,
    ):
        pass
    return run


def test_context_and_coherence_beat_the_prior(mini_kb: KnowledgeBase) -> None:
    reports = evaluate(mini_kb, EvaluationConfig())
    accuracy: dict[str, float] = {report.model: report.result.scores.accuracy for report in reports}
    assert accuracy["prior"] == pytest.approx(0.532, abs=0.005)
    # another machine rounds otherwise: a few of 235 mentions may fall to the other side
    assert accuracy["local"] == pytest.approx(0.711, abs=0.025)
    assert accuracy["global"] == pytest.approx(0.736, abs=0.025)


def test_some_documents_only_joint_inference_gets_right(mini_kb: KnowledgeBase) -> None:
    """Documents the models were not fitted on, all of whose mentions the global model solves and no other does."""
    solved: dict[str, set[str]] = {}
    for kind in ("prior", "local", "global"):
        linker = Linker.open(mini_kb, kind)
        for document in read_dataset("mini:dev") + read_dataset("mini:test"):
            answers = linker.link_batch([document])[0]
            if all(a.best and a.best.title == m.gold for a, m in zip(answers, document.mentions, strict=True)):
                solved.setdefault(kind, set()).add(document.name)
    assert len(solved["global"] - solved["local"] - solved["prior"]) >= 2


def test_a_resumed_fit_ends_with_the_same_weights(
    inputs: LinkerInputs, documents: dict[str, list[EncodedDocument]], tmp_path: Path
) -> None:
    steady = replace(SHORT, schedule="drop")  # a decay would depend on the number of epochs
    whole = fit(inputs, documents, steady)
    fit(inputs, documents, replace(steady, epochs=2)).save(tmp_path)
    resumed = Run()
    resumed.load(tmp_path)
    fit(inputs, documents, steady, resumed)
    assert [row["epoch"] for row in resumed.history] == [2, 4]
    for row, expected in zip(resumed.history, whole.history, strict=True):
        assert {**row, "seconds": 0} == {**expected, "seconds": 0}
    for name, tensor in whole.fits["global.0"]["last"].items():
        assert torch.equal(resumed.fits["global.0"]["last"][name], tensor)


def test_fitting_lowers_the_loss_and_keeps_f_within_bounds(
    inputs: LinkerInputs, documents: dict[str, list[EncodedDocument]]
) -> None:
    run = fit(inputs, documents, replace(SHORT, epochs=10), model=ModelConfig(max_norm=1.0))
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    weights = {name: tensor for name, tensor in run.fits["global.0"]["last"].items() if name.startswith("f.")}
    assert len(weights) == 4
    assert all(tensor.norm() <= 1 + 1e-5 for tensor in weights.values())


def test_patience_and_late_learning_rate_follow_the_validations(
    inputs: LinkerInputs, documents: dict[str, list[EncodedDocument]]
) -> None:
    # a learning rate of zero never improves on the first validation
    still = TrainingConfig(epochs=50, patience=3, learning_rate=0.0, documents_per_step=72)
    assert [row["epoch"] for row in fit(inputs, documents, still).history] == [1, 2, 3, 4]
    late = TrainingConfig(epochs=3, schedule="drop", late_accuracy=0.0, final_learning_rate=1e-12)
    losses = [row["loss"] for row in fit(inputs, documents, late).history]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_two_ray_workers_take_the_same_steps_as_one_process(
    corpus_kb: KnowledgeBase, inputs: LinkerInputs, documents: dict[str, list[EncodedDocument]], tmp_path: Path
) -> None:
    two_steps = TrainingConfig(model="global", epochs=1, documents_per_step=36, learning_rate=3e-3)
    shutil.copytree(corpus_kb.root, tmp_path / "kb")
    kb = KnowledgeBase(tmp_path / "kb")
    train_linker(kb, two_steps, ModelConfig(), CandidateConfig(), WorkerConfig(num_workers=2))
    weights = load_file(kb.open("linker").path / "global.safetensors")
    assert not list((kb.root / "runs").iterdir())
    expected = fit(inputs, documents, two_steps)
    differences = torch.cat(
        [(weights[name] - tensor).flatten().abs() for name, tensor in expected.fits["global.0"]["best"].items()]
    )
    # Adam's first steps have the size of the learning rate however small a gradient is: where there is none but rounding
    # (f's last bias, units that never fire) the sign is chance
    assert (differences < 1e-4).float().mean() > 0.95
    history = list(csv.DictReader((kb.open("linker").path / "history.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in history] == pytest.approx([row["loss"] for row in expected.history], rel=1e-4)


def test_a_run_of_another_configuration_is_not_taken_up(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    resume = ResumeConfig(storage_path=str(tmp_path), run_name="same")
    folders = {resume.folder(corpus_kb, "train", {"seed": seed}) for seed in (1, 2)}
    assert len(folders) == 2


def test_the_mini_documents_are_not_used_for_another_dump(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with kb.write("pages", config={"dumps": [{"file": "other.xml"}]}, parents=()) as folder:
        (folder / "pages").write_text("x")
    with pytest.raises(DeepEdError, match="Give --train"):
        train_linker(kb, MINI_TRAINING, ModelConfig(), CandidateConfig(), WorkerConfig())
