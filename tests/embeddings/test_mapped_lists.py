from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from deeped_ray.embeddings import mapped_lists
from deeped_ray.embeddings.index import IndexConfig, write_index
from deeped_ray.embeddings.mapped_lists import read_mapped
from tests.embeddings.test_index import is_mapped, make_vectors

QUERIES = make_vectors(num=50, seed=1)[1::3]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index in 4-bit codes, and an empty cache."""
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    write_index(tmp_path, make_vectors(), IndexConfig(index_kind="ivf-pq"))
    return tmp_path / "entities.faiss"


def cached(file: Path, name: str) -> Path:
    return file.parent / "cache" / "index" / "abc" / name


def answers(index: Any) -> list[Any]:
    """To single queries and to all at once, with few probes and with the index's own."""
    few = faiss.SearchParametersIVF(nprobe=2)  # type: ignore[call-arg]
    asked = [*QUERIES[:, None], QUERIES]
    return [[index.search(each, 20, params=params) for each in asked] for params in (None, few)]


def test_mapped_codes_give_the_same_answers(file: Path) -> None:
    in_memory, mapped = faiss.read_index(str(file)), read_mapped(file, "abc")
    assert mapped.ntotal == in_memory.ntotal == 2_700
    np.testing.assert_equal(answers(mapped), answers(in_memory))


def test_codes_are_mapped_and_the_second_process_only_opens_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_mapped(file, "abc")
    monkeypatch.setattr(mapped_lists, "_take_apart", lambda *_: pytest.fail("was taken apart again"))
    index = read_mapped(file, "abc")
    assert is_mapped(cached(file, "codes"))
    assert index.ntotal == 2_700


@pytest.mark.parametrize("name", ["lists.npy", "codes"])
def test_what_a_process_left_half_written_is_written_again(file: Path, name: str) -> None:
    expected = answers(read_mapped(file, "abc"))
    cached(file, name).unlink()
    cached(file, "codes").touch()
    np.testing.assert_equal(answers(read_mapped(file, "abc")), expected)


def test_without_a_cache_to_write_the_index_is_read_into_memory(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    (file.parent / "cache").write_text("no folder")
    assert read_mapped(file, "abc").ntotal == 2_700
    assert "is read into memory" in caplog.text
