import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import OneLineParser, add_options, config_from
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a test."""

    file: Annotated[tuple[str, ...], "files"] = ()
    kind: Annotated[Literal["a", "b"], "kind"] = "a"
    size: Annotated[int, "size"] = 3
    rate: Annotated[float, "rate"] = 0.5
    name: Annotated[str | None, "name"] = None
    quick: Annotated[bool, "quick"] = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DeepEdError("--size must be at least 1.")


def parse(*arguments: str) -> Settings:
    parser = OneLineParser()
    add_options(parser, Settings)
    return config_from(parser.parse_args(arguments), Settings)


def test_defaults_are_the_dataclass_defaults() -> None:
    assert parse() == Settings()


def test_every_kind_of_field_becomes_an_option() -> None:
    given = parse(
        "--file", "x", "--file", "y", "--kind", "b", "--size", "7", "--rate", "1e-4", "--name", "n", "--quick"
    )
    assert given == Settings(file=("x", "y"), kind="b", size=7, rate=1e-4, name="n", quick=True)


def test_help_shows_texts_and_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Settings)
    text = parser.format_help()
    assert "Settings of a test" in text
    assert "rate (default: 0.5)" in text


def test_a_value_the_dataclass_refuses_is_a_users_error() -> None:
    with pytest.raises(DeepEdError, match="--size"):
        parse("--size", "0")


def test_a_wrong_option_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse("--kind", "c")
    assert exit_.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


JOBS = sorted(path.name for path in (ROOT / "jobs").glob("*.py"))


@pytest.mark.parametrize("job", JOBS)
def test_every_job_is_short_and_teaches_by_help(job: str) -> None:
    assert len((ROOT / "jobs" / job).read_text().splitlines()) <= 40
    run = subprocess.run([sys.executable, ROOT / "jobs" / job, "--help"], capture_output=True, text=True, check=True)
    assert f"ray job submit --working-dir . -- python jobs/{job} --kb" in run.stdout


@pytest.mark.parametrize(
    ("job", "needs"),
    [("embed_entities.py", "build_corpus"), ("build_index.py", "embed_entities"), ("evaluate.py", "build_corpus")],
)
def test_a_job_without_its_input_says_which_job_to_run(job: str, needs: str, tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    run = subprocess.run(
        [sys.executable, ROOT / "jobs" / job, "--kb", tmp_path / "kb"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr.strip().splitlines()[-1].startswith("error: No ")
    assert f"Run jobs/{needs}.py" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_missing_dump_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "jobs" / "build_corpus.py"),
        "--kb",
        str(tmp_path / "kb"),
        "--dump",
        "nowhere.xml",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.strip() == "error: Cannot read nowhere.xml: No such file or directory."
    assert not (tmp_path / "kb" / "manifest.json").exists()


def test_the_result_line_is_json(mini_kb: KnowledgeBase) -> None:
    root = mini_kb.root
    run = subprocess.run(
        [sys.executable, ROOT / "jobs" / "evaluate.py", "--kb", root, "--model", "prior"],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.strip().splitlines()[-1])
    assert result["stage"] == "evaluate"
    assert result["results"][0]["mentions"] == 235
