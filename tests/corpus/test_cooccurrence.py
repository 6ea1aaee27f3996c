from pathlib import Path

import numpy as np

from deeped_ray.corpus.cooccurrence import WordCounts, count_pairs, link_words, reduce_counts, tokenize_to_ids
from deeped_ray.corpus.shuffle import partition_of_ids, spill
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.arrays import concatenate_arrays, concatenate_offsets
from deeped_ray.storage.location import Location
from deeped_ray.text import tokenize
from deeped_ray.types import Link

TEXT = "Golden apples ripen while Queen plays loud music near orchards"
WORDS = [word for word in TEXT.split() if word != "while"]
VOCABULARY = {word: number for number, word in enumerate(WORDS)}


def words_around(link: Link, *, window: int) -> list[str]:
    position, ids = link_words(tokenize_to_ids(TEXT, VOCABULARY), [link], window=window)
    assert set(position.tolist()) <= {0}
    return [WORDS[number] for number in ids.tolist()]


def test_bulk_tokens_are_those_of_the_one_tokenizer() -> None:
    text = "Pelé's U.S. tour, 1975: élan—vital! "
    tokens = tokenize_to_ids(text, {"tour": 7})
    places = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    assert places == [(token.start, token.end) for token in tokenize(text)]
    assert tokens.ids.tolist() == [7 if token.word == "tour" else -1 for token in tokenize(text)]
    assert tokenize_to_ids("", {}).ids.tolist() == []


def test_link_windows_leave_out_the_link_and_count_before_dropping_stop_words() -> None:
    link = Link(TEXT.index("Queen"), TEXT.index("Queen") + 5, "Queen (band)")
    # `while` takes a place but carries nothing
    assert words_around(link, window=6) == ["apples", "ripen", "plays", "loud", "music"]


def test_windows_end_with_the_text() -> None:
    assert words_around(Link(0, len("Golden apples"), "Apple"), window=4) == ["ripen"]


def test_counts_of_several_shards_are_added_up_and_read_back_by_entity(tmp_path: Path) -> None:
    shards = [([2, 2, 2, 0], [7, 3, 3, 1]), ([2, 0], [3, 1])]
    paths = []
    for number, (entity_ids, words) in enumerate(shards):
        table = count_pairs(np.array(entity_ids), np.array(words))
        paths.append(Location(tmp_path / f"{number}.arrow"))
        spill(paths[-1], table, partition_of_ids(table["entity"].to_numpy(), 4, 2), 2)
    for partition, (first, last) in enumerate([(0, 2), (2, 4)]):
        reduce_counts(paths, partition, first, last, tmp_path / f"piece-{partition}")
    concatenate_offsets([tmp_path / f"piece-{p}.offsets.npy" for p in (0, 1)], tmp_path / "page_words.offsets.npy")
    for name in ("words", "counts"):
        concatenate_arrays([tmp_path / f"piece-{p}.{name}.npy" for p in (0, 1)], tmp_path / f"page_words.{name}.npy")
    counts = WordCounts(Part("corpus", "0", Location(tmp_path), {}), "page_words")
    assert [row.tolist() for row in counts[2]] == [[3, 7], [3, 1]]
    assert [row.tolist() for row in counts[0]] == [[1], [2]]
    assert [row.tolist() for row in counts[1]] == [[], []]
