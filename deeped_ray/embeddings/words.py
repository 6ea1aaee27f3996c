"""Word vectors x_w: read from a word2vec or GloVe file, or learned from the dump itself (`learned_words`).

The `words` part holds the vocabulary words that have a vector, in hash order: `words.hashes.npy`, `words.arrow`,
`vectors.npy` [V, d] of unit length, `counts.npy` and `corpus_ids.npy` (their rows in the corpus vocabulary).
"""

import functools
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, write_strings
from deeped_ray.running.config import FLAG
from deeped_ray.running.progress import Progress
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.cache import temporary_folder
from deeped_ray.storage.compressed import READ_ERRORS, open_decompressed
from deeped_ray.storage.location import Address, Location
from deeped_ray.text import is_content_word
from deeped_ray.types import DeepEdError, require_at_least

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_BLOCK = 8192


@dataclass(frozen=True, kw_only=True)
class WordVectorConfig:
    """Where word vectors come from."""

    word_vectors: Annotated[
        str | None,
        "word2vec (.bin or .txt) or GloVe file, or another knowledge base; default: learn the vectors from the dump. A file may be compressed.",
        FLAG,
    ] = None
    dimension: Annotated[int, "d: length of word and entity vectors. With `word_vectors` it must match the file."] = 300
    ppmi_window: Annotated[int, "learning from the dump: words on each side that count as context"] = 10
    ppmi_smoothing: Annotated[
        float, "learning from the dump: exponent on context frequencies in PPMI. Below 1, rare contexts count less."
    ] = 0.75

    def __post_init__(self) -> None:
        require_at_least(2, self, "dimension")
        require_at_least(1, self, "ppmi_window")


# -- pretrained files


def read_vectors(path: Address) -> Iterator[tuple[str, Vectors]]:
    """(word, vector) pairs of a word2vec binary, word2vec text or GloVe text file; the format is told from its content."""
    try:
        with io.BufferedReader(open_decompressed(path), 2**20) as source:
            head = source.peek(2**16)
            first_line, _, rest = head.partition(b"\n")
            sizes = first_line.split()
            if len(sizes) == 2 and all(size.isdigit() for size in sizes):
                source.readline()
                dimension = int(sizes[1])
                # In a text file the second line holds the word and `dimension` numbers; binary floats hold no such line.
                if _is_text_row(rest.partition(b"\n")[0], dimension):
                    yield from _read_text(source, dimension, path)
                else:
                    yield from _read_binary(source, int(sizes[0]), dimension, path)
            elif _is_text_row(first_line, len(sizes) - 1):
                yield from _read_text(source, len(sizes) - 1, path)
            else:
                raise DeepEdError(
                    f"{path} is neither a word2vec nor a GloVe file: its first line is {first_line[:60]!r}."
                )
    except READ_ERRORS as error:
        raise DeepEdError(f"Cannot read word vectors {path}: {error}.") from error


def _is_text_row(line: bytes, dimension: int) -> bool:
    cells = line.rstrip().rsplit(b" ", dimension)
    try:
        return dimension > 0 and len(cells) == dimension + 1 and all(np.isfinite(float(cell)) for cell in cells[1:])
    except ValueError:
        return False


def _read_text(source: "io.BufferedReader[Any]", dimension: int, path: Address) -> Iterator[tuple[str, Vectors]]:
    for number, line in enumerate(source, start=1):
        # GloVe has words with spaces in them, so the vector is counted from the right
        cells = line.rstrip().rsplit(b" ", dimension)
        try:
            yield cells[0].decode("utf-8", "replace"), np.array(cells[1:], dtype=np.float32).reshape(dimension)
        except ValueError as error:
            raise DeepEdError(f"{path}: vector {number:,} does not have {dimension} numbers.") from error


def _read_binary(
    source: "io.BufferedReader[Any]", num_words: int, dimension: int, path: Address
) -> Iterator[tuple[str, Vectors]]:
    width = 4 * dimension
    for number in range(1, num_words + 1):
        word = bytearray()
        while (byte := source.read(1)) not in (b" ", b""):
            word += byte
        values = source.read(width)
        if len(values) < width:
            raise DeepEdError(f"{path} ends early: vector {number:,} of {num_words:,} is incomplete.")
        yield word.strip().decode("utf-8", "replace"), np.frombuffer(values, dtype="<f4")


def unit_rows(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vectors = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
    return scaled


# -- the words part


def pretrained_words(corpus_vocabulary: StringIndex, config: WordVectorConfig, aside: Path) -> tuple[Ids, Vectors]:
    """Corpus vocabulary ids that the file has a vector for, rising, and these vectors, mapped: they lie in the folder `aside`."""
    assert config.word_vectors is not None
    path = Location(config.word_vectors)
    progress = Progress("read word vectors", "words")
    places, count = np.full(len(corpus_vocabulary), -1, np.int32), 0
    with open(aside / "found", "wb") as sink:  # in the file's order
        for word, vector in _read_part(path) if _is_kb(path) else read_vectors(path):
            progress.advance()
            if len(vector) != config.dimension:
                raise DeepEdError(
                    f"{path} has {len(vector)}-dimensional vectors, but corpus.dimension is {config.dimension}. Add --set corpus.dimension={len(vector)}."
                )
            word_id = corpus_vocabulary.find(word)
            if word_id is not None and places[word_id] < 0 and np.isfinite(vector).all() and vector.any():
                vector.tofile(sink)
                places[word_id], count = count, count + 1
    if not count:
        raise DeepEdError(f"None of the {len(corpus_vocabulary):,} vocabulary words has a usable vector in {path}.")
    ids = np.flatnonzero(places >= 0)
    found = np.memmap(aside / "found", np.float32, "r", shape=(count, config.dimension))
    vectors = np.lib.format.open_memmap(aside / "vectors.npy", "w+", np.dtype(np.float32), found.shape)
    for start in range(0, count, _BLOCK):
        rows = slice(start, start + _BLOCK)
        vectors[rows] = unit_rows(np.asarray(found[places[ids[rows]]]))
    return ids, vectors


def _is_kb(path: Location) -> bool:
    return (path / "manifest.json").exists()


def _read_part(path: Location) -> Iterator[tuple[str, Vectors]]:
    """The word vectors of another knowledge base."""
    words = Words(KnowledgeBase(path).open("words"))
    for row, vector in enumerate(words.vectors):
        yield words[row], vector


def build_words(kb: KnowledgeBase, config: WordVectorConfig, resume: ResumeConfig = NEW_RUN) -> dict[str, Any]:
    """Make the words part unless it is there already; returns its size."""
    from deeped_ray.embeddings.learned_words import learned_words  # imports scipy, which readers do not need
    from deeped_ray.running import tasks

    recorded = asdict(config)
    if config.word_vectors:
        path = Location(config.word_vectors)
        recorded["word_vectors"] = KnowledgeBase(path).open("words").id if _is_kb(path) else fingerprint(path)
    if not kb.is_current("words", config=recorded, parents=["pages", "corpus"]):
        with kb.write("words", config=recorded, parents=["pages", "corpus"]) as folder:
            pages, corpus = kb.open("pages"), kb.open("corpus")
            vocabulary = StringIndex(corpus.path, "vocabulary")
            if config.word_vectors:
                with temporary_folder(folder) as aside:
                    write_words(folder, corpus, vocabulary, *pretrained_words(vocabulary, config, aside))
            else:
                work = resume.folder(kb, "words", [pages.id, corpus.id, recorded])
                ids, vectors = learned_words(pages, corpus, config, work, functools.partial(tasks.run, work=work))
                work.remove()
                write_words(folder, corpus, vocabulary, np.array(ids), vectors)
    num_words, dimension = kb.open("words").array("vectors").shape
    return {"words": num_words, "dimension": dimension}


def write_words(folder: Path, corpus: Part, vocabulary: StringIndex, ids: Ids, vectors: Vectors) -> None:
    """The files of the part: `ids` are rows of the corpus vocabulary, rising."""
    write_strings(folder, "words", vocabulary.take(ids))
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "corpus_ids.npy", ids.astype(np.int32))
    np.save(folder / "counts.npy", corpus.array("vocabulary.counts")[ids])


_FEW = 32
"""Up to so many, words are looked up one by one: most of them are remembered."""
LONGEST_REMEMBERED = 50
"""Letters of words whose look-up is remembered: texts of strangers may have words of a million."""


class Words:
    """Reads a words part."""

    def __init__(self, part: Part) -> None:
        self._index = StringIndex(part.path, "words")
        self.vectors: Vectors = np.asarray(part.array("vectors"))
        self.counts: npt.NDArray[np.int64] = part.array("counts")
        self.corpus_ids: npt.NDArray[np.int32] = part.array("corpus_ids")
        self._remembered = functools.lru_cache(maxsize=2**17)(self._find)
        self.remembered = np.zeros(2**16, np.uint64)
        """For the kernel that looks up all words of a text: see `linking.text_kernels`."""

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, word_id: int) -> str:
        return self._index[word_id]

    def take(self, word_ids: npt.NDArray[np.int64]) -> list[str]:
        return self._index.take(word_ids)

    def find(self, word: str) -> int | None:
        """Row of a word's vector; None if it has none or is a stop word."""
        return self._remembered(word) if len(word) <= LONGEST_REMEMBERED else self._find(word)

    def _find(self, word: str) -> int | None:
        return self._index.find(word) if is_content_word(word) else None

    def find_all(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """`find` for many words at once, -1 where there is none."""
        if len(words) <= _FEW:
            return np.array([-1 if (row := self.find(word)) is None else row for word in words], np.int64)
        rows = np.full(len(words), -1)
        content = [place for place, word in enumerate(words) if is_content_word(word)]
        rows[content] = self._index.find_all([words[place] for place in content])
        return rows

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        return self._index.hashes

    def rows_of_corpus_ids(self, num_corpus_words: int) -> npt.NDArray[np.int32]:
        """Maps corpus vocabulary ids to rows of `vectors`, -1 where there is none."""
        rows = np.full(num_corpus_words, -1, dtype=np.int32)
        rows[self.corpus_ids] = np.arange(len(self.corpus_ids), dtype=np.int32)
        return rows


def ranked_words(words: Words, vector: npt.NDArray[Any], *, count: int, min_count: int = 0) -> list[tuple[str, float]]:
    """The words closest to a vector by cosine, among those at least `min_count` times in the dump."""
    scores = words.vectors @ np.asarray(vector, dtype=np.float32)
    scores[words.counts < min_count] = -np.inf
    best = np.argsort(-scores)[:count]
    return [(words[int(row)], float(scores[row])) for row in best if np.isfinite(scores[row])]
