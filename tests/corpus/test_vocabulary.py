from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deeped_ray.corpus import vocabulary
from deeped_ray.corpus.vocabulary import Vocabulary
from deeped_ray.knowledge.strings import StringIndex, hashes_of, write_hashed_strings


def test_words_read_some_at_a_time_are_found_like_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = sorted({f"wörd{number}" for number in range(50)}, key=lambda word: int(hashes_of([word])[0]))
    write_hashed_strings(tmp_path, "vocabulary", hashes_of(words), pa.array(words))
    monkeypatch.setattr(vocabulary, "WORDS_AT_ONCE", 7)
    read = Vocabulary.read(StringIndex(tmp_path, "vocabulary"))
    np.testing.assert_equal(read, Vocabulary.of(words))


def test_a_vocabulary_without_words_finds_none(tmp_path: Path) -> None:
    write_hashed_strings(tmp_path, "vocabulary", hashes_of([]), pa.array([], pa.string()))
    assert len(Vocabulary.read(StringIndex(tmp_path, "vocabulary")).hashes) == 0
