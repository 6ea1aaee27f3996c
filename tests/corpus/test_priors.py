from pathlib import Path

import numpy as np
import pytest

from deeped_ray.artifacts import Part
from deeped_ray.corpus.priors import (
    MAX_CANDIDATES,
    MentionTable,
    PriorCandidate,
    mention_rows,
    reduce_mentions,
    title_mentions,
)
from deeped_ray.corpus.shuffle import spill


def table_of(folder: Path, *counts: dict[tuple[str, int], float]) -> MentionTable:
    """A mention table from the counts of several shards."""
    paths = [folder / f"{number}.arrow" for number in range(len(counts))]
    for path, shard in zip(paths, counts, strict=True):
        rows = mention_rows(shard)
        spill(path, rows, np.zeros(len(rows), dtype=np.int64), 1)
    reduce_mentions(paths, 0, folder, "mentions")
    return MentionTable(Part("corpus", "0", folder, {}))


@pytest.fixture
def mentions(tmp_path: Path) -> MentionTable:
    first = {("Apple", 1): 4.0, ("Apple", 0): 2.0, ("New York", 5): 1.0}
    return table_of(tmp_path, first, {("Apple", 1): 2.0, ("Queen's Park", 7): 1.0})


def test_priors_are_shares_of_links_over_all_shards_most_frequent_first(mentions: MentionTable) -> None:
    assert mentions.candidates("Apple") == [PriorCandidate(1, 0.75, 6), PriorCandidate(0, 0.25, 2)]


def test_surfaces_are_normalised_and_headlines_fall_back_to_capitals(mentions: MentionTable) -> None:
    assert mentions.candidates(" Apple\n") == mentions.candidates("Apple")
    assert mentions.candidates("NEW YORK") == [PriorCandidate(5, 1.0, 1)]
    assert mentions.candidates("QUEEN'S PARK") == [PriorCandidate(7, 1.0, 1)]


def test_an_unknown_surface_has_no_candidates(mentions: MentionTable) -> None:
    assert mentions.candidates("Pear") == []
    assert mentions.candidates("") == []


def test_equal_counts_are_ranked_by_entity_id(tmp_path: Path) -> None:
    table = table_of(tmp_path, {("X", 9): 1.0, ("X", 3): 1.0})
    assert [candidate.entity_id for candidate in table.candidates("X")] == [3, 9]


def test_only_the_best_candidates_of_a_mention_are_kept(tmp_path: Path) -> None:
    table = table_of(tmp_path, {("X", entity): entity + 1.0 for entity in range(150)} | {("Y", 1): 1.0})
    assert len(table.candidates("X")) == MAX_CANDIDATES
    assert table.candidates("X")[0].entity_id == 149
    assert table.candidates("Y") == [PriorCandidate(1, 1.0, 1)]


def test_titles_are_mentions_with_and_without_their_qualifier() -> None:
    rows = title_mentions(["Apple (fruit)", "Paris, Texas"], [3, 4]).to_pylist()
    assert {(row["mention"], row["entity"], row["count"]) for row in rows} == {
        ("Apple (fruit)", 3, 0.5),
        ("Apple", 3, 0.5),
        ("Paris, Texas", 4, 0.5),
        ("Paris", 4, 0.5),
    }
