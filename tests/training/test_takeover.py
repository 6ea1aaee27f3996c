"""The linker of another knowledge base taken over."""

import json
from pathlib import Path

import pytest

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.training.takeover import take_linker
from deeped_ray.types import DeepEdError

pytestmark = pytest.mark.usefixtures("local_ray_session")
ROWS = [
    {"title": "Norrby Montreal", "aliases": ["Montreal"], "description": "A hockey stick with a long blade and shaft."},
    {"title": "Norrby Apple", "aliases": ["Apple"], "description": "A green fruit for teams on the ice, from trees."},
]


@pytest.fixture(scope="module")
def own(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """Two products, with the word vectors of the mini encyclopedia."""
    folder = tmp_path_factory.mktemp("takeover")
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    kb = KnowledgeBase(folder / "kb", create=True)
    build_corpus(kb, CorpusConfig(entities=(str(folder / "own.jsonl"),), min_word_count=1, partitions=2))
    build_words(kb, WordVectorConfig(dimension=100, word_vectors=str(mini_kb.root)))
    embed_entities(kb)
    build_index(kb, IndexConfig())
    return kb


def test_a_linker_is_taken_over_with_its_calibration(own: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    assert take_linker(own, str(mini_kb.root))["linker"] == mini_kb.open("linker").id
    made = own.open("linker").id
    take_linker(own, str(mini_kb.root))
    assert own.open("linker").id == made
    linker = Linker.open(own)
    assert linker.model is not None
    assert linker.certainty is not None
    (prediction,) = linker.link("The blade of my Montreal broke", [(16, 24)])
    assert [each.title for each in prediction.candidates] == ["Norrby Montreal"]


def test_other_word_vectors_are_refused(own: KnowledgeBase, mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    build_corpus(kb, CorpusConfig(entities=(str(tmp_path / "own.jsonl"),), min_word_count=1, partitions=2))
    build_words(kb, WordVectorConfig(dimension=5))
    with pytest.raises(DeepEdError, match=r"have 5 dimensions, those of .* 100. Build with --word-vectors"):
        take_linker(kb, str(mini_kb.root))
    with pytest.raises(DeepEdError, match="No linker part"):
        take_linker(kb, str(tmp_path / "kb"))
