import numpy as np

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings.evidence import (
    LINKS,
    NOTHING,
    PAGE,
    PAGE_AND_LINKS,
    TITLE_ONLY,
    Bags,
    Evidence,
    EvidenceReader,
    bags_of,
    fingerprints,
)
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase

HASHES = np.array([11, 22, 33], dtype=np.uint64)


def bags(*rows: list[int]) -> Bags:
    return bags_of([np.array(row, dtype=np.int64) for row in rows])


def reader_of(kb: KnowledgeBase) -> EvidenceReader:
    return EvidenceReader(kb.open("corpus"), Words(kb.open("words")))


def test_bags_count_repeated_words_and_leave_out_those_without_a_vector() -> None:
    found = bags([5, -1, 5, 2], [], [-1])
    assert (found.offsets.tolist(), found.rows.tolist(), found.counts.tolist()) == ([0, 2, 2, 2], [2, 5], [1, 2])
    assert found.masses.tolist() == [3, 0, 0]


def test_kinds_say_where_the_words_come_from() -> None:
    evidence = Evidence(bags([], [], [1], [], [1]), bags([], [], [], [1], [1]), bags([], [1], [1], [1], [1]))
    assert evidence.kinds.tolist() == [NOTHING, TITLE_ONLY, PAGE, LINKS, PAGE_AND_LINKS]


def test_entities_read_one_by_one_are_those_read_together(corpus_kb: KnowledgeBase) -> None:
    reader = reader_of(corpus_kb)
    ids = np.array([3, 4, 5, 100, 7])
    together = reader.read(ids)
    for place, entity in enumerate(ids):
        alone = reader.read(np.array([entity]))
        for several, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(several.bag(place)[0], one.bag(0)[0])
            np.testing.assert_array_equal(several.bag(place)[1], one.bag(0)[1])


def test_title_words_are_found_by_their_vectors(corpus_kb: KnowledgeBase) -> None:
    words = Words(corpus_kb.open("words"))
    entity = Catalogue(corpus_kb.open("corpus")).require("Stanley Cup")
    rows, _ = reader_of(corpus_kb).read(np.array([entity])).title.bag(0)
    assert {words[int(row)] for row in rows} == {"Stanley", "Cup"}


def test_fingerprints_change_with_words_counts_source_and_title_only() -> None:
    def of(page: list[int], links: list[int], title: str = "A", hashes: np.ndarray = HASHES) -> int:
        return int(fingerprints(Evidence(bags(page), bags(links), bags([])), [title], hashes)[0])

    base = of([0, 1], [2])
    assert base not in {of([0, 0, 1], [2]), of([0, 2], [1]), of([2], [0, 1]), of([0, 1], []), of([0, 1], [2], "B")}
    # word ids are places in one dump's vocabulary: another order of the same words is the same evidence
    assert base == of([1, 2], [0], hashes=np.array([33, 11, 22], dtype=np.uint64))
