"""All stages in one job, and what every job tells when it ends."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray._private.runtime_env.packaging import create_package

from deeped_ray import stages
from deeped_ray.evaluation.report import EvaluationConfig
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import MAKERS
from deeped_ray.running.config import flags_of, read_config
from deeped_ray.stages import ALONE, STAGES, RunConfig
from deeped_ray.types import DeepEdError
from tests.conftest import MINI_SETTINGS, copy_of

ROOT = Path(__file__).parent.parent


def run_job(job: str, *options: str, address: str = "") -> tuple[int, dict[str, Any], str]:
    """Exit code, result line, and what was told to people."""
    command = [sys.executable, f"jobs/{job}.py", *options]
    environment = {**os.environ, "RAY_ADDRESS": address}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, json.loads(run.stdout.strip().splitlines()[-1]), run.stderr


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The settings that a command line resolves to."""
    with pytest.raises(SystemExit):
        stages.main("pipeline", "doc", [*arguments, "--print-config"])
    return yaml.safe_load(capsys.readouterr().out)


def test_flags_files_and_set_are_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wiki.yaml"
    file.write_text("kb: KB\ncorpus: {dump: [d], min_word_count: 7}\nlinker: {epochs: 3, rounds: 4}\n")
    arguments = ("--config", str(file), "--train", "aida:x", "--set", "linker.rounds=9")
    found = printed(monkeypatch, capsys, *arguments)
    assert found["kb"] == "KB"
    assert (found["corpus"]["min_word_count"], found["corpus"]["link_window"]) == (7, 20)
    assert (found["linker"]["epochs"], found["linker"]["rounds"], found["linker"]["train"]) == (3, 9, ["aida:x"])
    file.write_text(yaml.safe_dump(found))
    assert printed(monkeypatch, capsys, "--config", str(file)) == found


def test_without_a_dump_settings_suit_the_mini_encyclopedia(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(monkeypatch, capsys)["corpus"]["dimension"] == 100
    assert printed(monkeypatch, capsys, "--set", "corpus.dimension=50")["corpus"]["dimension"] == 50
    assert printed(monkeypatch, capsys, "--dump", "d")["corpus"]["dimension"] == 300


def test_what_would_fail_hours_later_fails_now() -> None:
    _, configs = stages.resolve({"corpus": {"dump": ["d"]}, "linker": {"train": ["aida:x"]}})
    assert stages.chosen(configs)[-1].name == "train_linker"
    with pytest.raises(DeepEdError, match="--from build_index comes after --until"):
        stages.chosen(configs, first="build_index", until="embed_entities")
    found = stages.chosen(configs, until="build_index")
    assert [stage.name for stage in found] == ["build_corpus", "embed_entities", "build_index"]


def test_flags_are_few() -> None:
    """New options become keys: flags are for what people set every day."""
    for stage in (*STAGES, *ALONE):  # and all have --config, --set and --print-config, which stand for the others
        assert len(flags_of(RunConfig)) + len(flags_of(stage.config)) <= 12, stage.name
    parser = stages._parser("pipeline", "", STAGES, "pipeline")
    assert len([action for action in parser._actions if action.option_strings]) - 1 <= 25


def test_every_part_has_the_maker_that_its_stage_says() -> None:
    makers = {part: f"jobs/{stage.name}.py" for stage in STAGES for part in stage.makes}
    assert makers | {"wikidata": "deeped wikidata"} == MAKERS  # the stage makes it only if it is given a file
    assert all((ROOT / maker).exists() for maker in makers.values())


def test_stages_that_are_done_are_skipped_and_the_others_run(
    local_ray_session: None, corpus_kb: KnowledgeBase, tmp_path: Path
) -> None:
    address = ray.get_runtime_context().gcs_address
    kb = copy_of(corpus_kb, tmp_path / "kb")
    for part in ("vectors", "index"):
        shutil.rmtree(kb.open(part).path)
    options = ("--kb", str(kb), *(word for setting in MINI_SETTINGS for word in ("--set", setting)))
    before = {part: kb.manifest()["parts"][part] for part in ("pages", "corpus", "words")}
    code, result, told = run_job(
        "pipeline", *options, "--train", "aida:nowhere", "--until", "train_linker", address=address
    )
    assert "build_corpus: nothing to do\n" in told
    assert "embed_entities: made vectors in " in told
    assert "build_index: made index in " in told
    assert before.items() <= kb.manifest()["parts"].items()
    assert code == 2
    assert told.strip().splitlines()[-1].startswith("error: train_linker: Cannot read ")
    assert result["error"].startswith("train_linker: Cannot read ")
    assert kb.manifest()["parts"]["vectors"]["settings"]["vectors"]["shard_words"] == 20_000
    _, configs = stages.resolve(read_config(tmp_path / "kb" / "manifest.json"))
    assert configs["vectors"].sharding.shard_words == 20_000
    summary = stages.run_stages(kb, STAGES[-1:], {"evaluation": EvaluationConfig(model="prior")})
    assert summary["evaluate"]["results"][0]["mentions"] == 235


# -- every job


@pytest.mark.parametrize("job", ["link_corpus", "pipeline"])
def test_a_wrong_command_line_is_told_to_people_and_programs(job: str) -> None:
    code, result, told = run_job(job, "--nonsense")
    assert code == 2
    assert len(told.strip().splitlines()) == 1
    assert result["stage"] == job
    assert "unrecognized arguments: --nonsense" in result["error"]


def test_a_bug_keeps_its_traceback_and_its_result_line(tmp_path: Path) -> None:
    script = tmp_path / "buggy.py"
    script.write_text(
        "from deeped_ray.running.job import run_to_result\n"
        "def run():\n    raise KeyError('what\\nnow')\n"
        "run_to_result('buggy', run)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
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
