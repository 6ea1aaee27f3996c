import argparse
import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import (
    FLAG,
    JOB_FLAG,
    add_flags,
    check_keys,
    flags_given,
    flags_of,
    make,
    merge,
    parse_sets,
    plain,
    read_config,
)
from deeped_ray.running.job import OneLineParser
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class Size:
    """A group."""

    size: Annotated[int, "size", FLAG] = 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DeepEdError("`size` must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a test."""

    file: Annotated[tuple[str, ...], "files. Many of them.", FLAG] = ()
    kind: Annotated[Literal["a", "b"], "kind", FLAG] = "a"
    group: Size = Size()
    rate: Annotated[float, "rate"] = 0.5
    name: Annotated[str | None, "name"] = None
    quick: Annotated[bool, "quick", JOB_FLAG] = False


SECTIONS = {"one": Settings, "other": Size}


def parse(*arguments: str) -> Settings:
    parser = OneLineParser()
    add_flags(parser, Settings)
    return make(Settings, flags_given(parser.parse_args(arguments), Settings))


def test_defaults_are_the_dataclass_defaults() -> None:
    assert parse() == Settings()


def test_marked_fields_become_flags_those_of_groups_too() -> None:
    given = parse("--file", "x", "--file", "y", "--kind", "b", "--size", "7", "--quick")
    assert given == Settings(file=("x", "y"), kind="b", group=Size(size=7), quick=True)
    assert list(flags_of(Settings, is_pipeline=True)) == ["file", "kind", "size"]


def test_help_shows_first_sentences_and_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Settings)
    text = parser.format_help()
    assert "size (default: 3)" in text
    assert "files\n" in text


def test_a_value_the_dataclass_refuses_is_a_users_error() -> None:
    with pytest.raises(DeepEdError, match=r"^one: `size` must be at least 1"):
        make(Settings, {"size": 0}, section="one")


def test_a_wrong_option_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse("--kind", "c")
    assert exit_.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "7"}, "one.size is '7': expected a whole number."),
        ({"size": True}, "one.size is True: expected a whole number."),
        ({"rate": "fast"}, "one.rate is 'fast': expected a number."),
        ({"kind": "c"}, "one.kind is 'c': expected a, b."),
        ({"file": [1]}, "one.file is [1]: expected a list of texts."),
        ({"quick": 1}, "one.quick is 1: expected true or false."),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DeepEdError, match=f"^{re.escape(message)}$"):
        make(Settings, values, section="one")


def test_whole_numbers_are_numbers_and_a_text_is_a_list_of_one() -> None:
    assert make(Settings, {"rate": 2, "file": "x", "name": None}) == Settings(rate=2.0, file=("x",))
    assert make(Settings, parse_sets(["one.rate=1e-4"])["one"]) == Settings(rate=1e-4)


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        ({"one": {"siez": 1}}, "one.siez. Did you mean one.size?"),
        ({"size": 1}, "size. Did you mean one.size or other.size?"),
        ({"onee": {"rate": 1}}, "onee.rate. Did you mean one.rate?"),
        ({"zzz": 1}, "zzz. docs/configuration.md"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_known_one(values: dict[str, Any], meant: str) -> None:
    with pytest.raises(DeepEdError, match=f"^There is no setting {re.escape(meant)}"):
        check_keys(values, SECTIONS, top=["kb"])


def test_later_layers_win_key_by_key() -> None:
    assert merge({"one": {"a": 1, "b": 2}}, {"one": {"b": 3}}, {"kb": "x"}) == {"one": {"a": 1, "b": 3}, "kb": "x"}


def test_set_takes_yaml_values() -> None:
    found = parse_sets(["one.size=7", "one.file=[a, b]", "one.name=", "log_format=json"])
    assert found == {"one": {"size": 7, "file": ["a", "b"], "name": None}, "log_format": "json"}
    with pytest.raises(DeepEdError, match=r"--set one\.size has no value"):
        parse_sets(["one.size"])


def test_a_config_goes_to_a_file_and_back(tmp_path: Path) -> None:
    config = Settings(file=("x",), group=Size(size=9), name="ü")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"one": plain(config)}))
    assert make(Settings, read_config(tmp_path / "a.yaml")["one"]) == config


@pytest.mark.parametrize("content", ["- a", "a: [", "text", "\0"])
def test_what_is_no_config_file_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(DeepEdError, match=r"a\.yaml[^\n]*$"):
        read_config(tmp_path / "a.yaml")


JOBS = sorted(path.name for path in (ROOT / "jobs").glob("*.py"))


@pytest.mark.parametrize("job", JOBS)
def test_every_job_is_short_and_teaches_by_help(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "jobs" / job
    assert len(path.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code in (None, 0)
    assert f"ray job submit --working-dir . -- python jobs/{job} --kb" in capsys.readouterr().out


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
