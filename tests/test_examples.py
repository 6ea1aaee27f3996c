"""The examples run, on the knowledge base of the mini encyclopedia."""

import runpy
import sys
from pathlib import Path

import pytest

from deeped_ray.knowledge.base import KnowledgeBase

EXAMPLES = Path(__file__).parent.parent / "examples"


def output_of(name: str, kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", [name, str(kb.root)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_link_text(mini_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of("link_text.py", mini_kb, monkeypatch, capsys).splitlines()
    assert lines[0].startswith("Montreal: Montreal Canadiens (0.")
    assert len(lines) == 5


def test_explore(mini_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = output_of("explore.py", mini_kb, monkeypatch, capsys)
    assert "Montreal: 71% of links" in out
    assert "global: Montreal Canadiens, Toronto Maple Leafs, Stanley Cup" in out
