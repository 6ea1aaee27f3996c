import gzip
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.embeddings.words import Words, WordVectorConfig, build_words, read_vectors
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import DeepEdError

TABLE = {"Queen": [1.0, 2.0, -0.5], "band": [0.0, 1.0, 0.25]}


def write_binary(path: Path, *, cut: int = 0) -> Path:
    rows = b"".join(word.encode() + b" " + np.array(vector, "<f4").tobytes() + b"\n" for word, vector in TABLE.items())
    path.write_bytes((f"{len(TABLE)} 3\n".encode() + rows)[: -cut or None])
    return path


def write_text(path: Path, *, header: bool) -> Path:
    lines = [f"{len(TABLE)} 3"] * header + [f"{word} {' '.join(map(str, vector))}" for word, vector in TABLE.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_dict(path: Path) -> dict[str, list[float]]:
    return {word: vector.tolist() for word, vector in read_vectors(path)}


def test_word2vec_binary_word2vec_text_and_glove_are_read_alike(tmp_path: Path) -> None:
    assert as_dict(write_binary(tmp_path / "a.bin")) == TABLE
    assert as_dict(write_text(tmp_path / "a.txt", header=True)) == TABLE
    assert as_dict(write_text(tmp_path / "glove.txt", header=False)) == TABLE


def test_gzipped_files_are_told_by_content(tmp_path: Path) -> None:
    plain = write_binary(tmp_path / "a.bin")
    (tmp_path / "b.bin").write_bytes(gzip.compress(plain.read_bytes()))
    assert as_dict(tmp_path / "b.bin") == TABLE


def test_a_file_cut_short_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="vector 2 of 2 is incomplete"):
        as_dict(write_binary(tmp_path / "a.bin", cut=6))


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello world\n")
    with pytest.raises(DeepEdError, match="neither a word2vec nor a GloVe file"):
        as_dict(tmp_path / "a.txt")


def test_a_stop_word_has_no_vector(corpus_kb: KnowledgeBase) -> None:
    assert Words(corpus_kb.open("words")).find("the") is None


@pytest.fixture
def copied_kb(corpus_kb: KnowledgeBase, tmp_path: Path) -> KnowledgeBase:
    """A knowledge base with the mini corpus that a test may change."""
    import shutil

    shutil.copytree(corpus_kb.root, tmp_path / "kb")
    return KnowledgeBase(tmp_path / "kb")


def test_pretrained_vectors_are_matched_with_the_vocabulary(copied_kb: KnowledgeBase, tmp_path: Path) -> None:
    path = write_binary(tmp_path / "a.bin")
    build_words(copied_kb, WordVectorConfig(word_vectors=str(path), dimension=3))
    words = Words(copied_kb.open("words"))
    row = words.find("Queen")
    assert len(words) == 2
    assert row is not None
    np.testing.assert_allclose(words.vectors[row], np.array(TABLE["Queen"]) / np.linalg.norm(TABLE["Queen"]), rtol=1e-6)


def test_vectors_of_another_dimension_leave_the_old_part(copied_kb: KnowledgeBase, tmp_path: Path) -> None:
    before = copied_kb.open("words").id
    with pytest.raises(DeepEdError, match=r"Add --set corpus\.dimension=3\."):
        build_words(copied_kb, WordVectorConfig(word_vectors=str(write_binary(tmp_path / "a.bin"))))
    assert copied_kb.open("words").id == before
