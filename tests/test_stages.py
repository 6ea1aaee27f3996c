"""All stages in one job, and what every job tells when it ends."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.runtime_env.packaging import create_package

from deeped_ray import pipeline
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.pipeline import STAGES, renamings
from deeped_ray.running.config import config_from
from deeped_ray.training.config import TrainingConfig
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).parent.parent


def run_job(job: str, *options: str, address: str = "") -> tuple[int, dict[str, Any], str]:
    """Exit code, result line, and what was told to people."""
    command = [sys.executable, f"jobs/{job}.py", *options]
    environment = {**os.environ, "RAY_ADDRESS": address}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, json.loads(run.stdout.strip().splitlines()[-1]), run.stderr


def parse(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    parsed: list[Any] = []

    def keep(args: Any) -> dict[str, Any]:
        parsed.append(args)
        return {}

    monkeypatch.setattr(sys, "argv", ["jobs/pipeline.py", "--kb", "KB", *arguments])
    monkeypatch.setattr(pipeline, "run_pipeline", keep)
    pipeline.main("doc")
    return parsed[0]


def test_options_of_one_name_bear_their_stage() -> None:
    names = [renamed.get(name, name) for config, renamed in renamings().items() for name in vars(config())]
    assert len(names) == len(set(names))
    assert renamings()[TrainingConfig] == {
        "model": "train_model",
        "learning_rate": "train_learning_rate",
        "seed": "train_seed",
    }
    assert set(renamings()) == {config for stage in STAGES for config in stage.configs}


def test_every_option_reaches_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    args = parse("--dump", "d", "--train-seed", "7", "--embed-seed", "8", "--train", "aida:x", monkeypatch=monkeypatch)
    training = config_from(args, TrainingConfig, renamed=renamings()[TrainingConfig])
    assert training == TrainingConfig(seed=7, train=("aida:x",))


def test_without_a_dump_settings_suit_the_mini_encyclopedia(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(monkeypatch=monkeypatch).dimension == 100
    assert parse("--dimension", "50", monkeypatch=monkeypatch).dimension == 50
    assert parse("--dump", "d", monkeypatch=monkeypatch).dimension == 300


def test_what_would_fail_hours_later_fails_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, message in (
        (("--dump", "d", "--train", "aida:x"), "Give --train and --dev"),
        (("--from", "build_index", "--until", "embed_entities"), "--from build_index comes after --until"),
    ):
        with pytest.raises(DeepEdError, match=message):
            pipeline._chosen(parse(*arguments, monkeypatch=monkeypatch))
    args = parse("--dump", "d", "--until", "build_index", monkeypatch=monkeypatch)
    assert [stage.name for stage in pipeline._chosen(args)] == ["build_corpus", "embed_entities", "build_index"]


def test_stages_that_are_done_are_skipped_and_the_others_run(local_ray_session: None, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    options = ("--kb", str(kb), "--train", "aida:nowhere", "--until")
    _, result, _ = run_job("pipeline", *options, "build_corpus", address=address)
    assert sorted(result["stages"]["build_corpus"]["made"]) == ["corpus", "pages", "words"]
    before = kb.manifest()["parts"]
    code, result, told = run_job("pipeline", *options, "train_linker", address=address)
    assert "build_corpus: done already\n" in told
    assert "embed_entities: made vectors in " in told
    assert "build_index: made index in " in told
    assert before.items() <= kb.manifest()["parts"].items()
    assert code == 2
    assert told.strip().splitlines()[-1].startswith("error: train_linker: Cannot read ")
    assert result["error"].startswith("train_linker: Cannot read ")
    args = pipeline._parser("").parse_args(["--kb", str(kb), "--from", "evaluate", "--evaluate-model", "prior"])
    assert pipeline.run_pipeline(args)["stages"]["evaluate"]["results"][0]["mentions"] == 235


# -- every job


@pytest.mark.parametrize("job", ["link_corpus", "pipeline"])
def test_a_wrong_command_line_is_told_to_people_and_programs(job: str) -> None:
    code, result, told = run_job(job, "--nonsense")
    assert code == 2
    assert len(told.strip().splitlines()) == 1
    assert result["stage"] == job
    assert "required: --kb" in result["error"]


def test_a_bug_keeps_its_traceback_and_its_result_line(tmp_path: Path) -> None:
    script = tmp_path / "buggy.py"
    script.write_text(
        "from deeped_ray.running.config import run_job\n"
        "def run(args):\n    raise KeyError('what\\nnow')\n"
        "run_job('buggy', 'doc', [], run)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), "--kb", "KB"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    assert json.loads(run.stdout)["error"].startswith("KeyError")


def test_what_a_job_uploads_is_small(tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    create_package(str(ROOT), package, include_gitignore=True)
    with zipfile.ZipFile(package) as content:
        names = content.namelist()
    assert package.stat().st_size < 5 * 2**20
    assert {"jobs/link_corpus.py", "deeped_ray/linking/linker.py", "deeped_ray/mini/train.tsv"} <= set(names)
    assert {name.partition("/")[0] for name in names if "/" in name} <= {"deeped_ray", "jobs", "serve"}
