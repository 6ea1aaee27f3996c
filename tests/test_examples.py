"""The examples run, on the knowledge base of the mini encyclopedia."""

import runpy
import sys
from pathlib import Path

import pytest

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.training.takeover import take_linker
from tests.conftest import copy_of

pytestmark = pytest.mark.usefixtures("local_ray_session")
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


def test_ray_data(mini_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of("ray_data.py", mini_kb, monkeypatch, capsys).splitlines()
    notes = [line for line in lines if line.startswith("note ")]
    assert [line.partition(":")[0] for line in notes] == ["note 0", "note 1", "note 2"]
    assert "Toronto => Toronto Maple Leafs; Stanley Cup => Stanley Cup" in notes[0]


def test_own_entities(
    mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the linker of the mini encyclopedia, which training it again would make once more."""
    kb = copy_of(mini_kb, tmp_path / "kb")
    products = str(EXAMPLES / "products.csv")
    build_corpus(kb, CorpusConfig(entities=(products,), min_word_count=2, partitions=3))
    build_words(kb, WordVectorConfig(dimension=100, word_vectors=str(mini_kb.root)))
    embed_entities(kb)
    build_index(kb, IndexConfig())
    take_linker(kb, str(mini_kb.root))
    out = output_of("own_entities.py", kb, monkeypatch, capsys)
    assert "Montreal: Norrby Montreal" in out
    assert "Montreal: Montreal Canadiens" in out
    assert "https://norrby.example/montreal" in out
    assert "Boston: Norrby Boston" in out
