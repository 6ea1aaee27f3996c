"""What a replica's process leaves to others."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from deeped_ray.linking import compiling
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.memory import compile_apart

ARGS = AppArgs(kb="/none", detection={"mentions": "all"})


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Nothing is compiled yet; the commands of processes that would compile."""
    commands: list[list[str]] = []
    monkeypatch.setattr(compiling, "_folder_of", lambda _: tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    return commands


def test_another_process_compiles_once_on_a_node(started: list[list[str]]) -> None:
    compile_apart(ARGS)
    compile_apart(ARGS)
    ((*_, module, args),) = started
    assert (module, AppArgs.model_validate_json(args)) == ("deeped_ray.serving.memory", ARGS)


def test_if_that_process_fails_the_next_one_tries_again(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: Any) -> None:
        started.append(command)
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fail)
    compile_apart(ARGS)
    compile_apart(ARGS)
    assert len(started) == 2
