from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deeped_ray.corpus.priors import (
    MAX_CANDIDATES,
    MentionTable,
    MergeRule,
    PriorCandidate,
    Senses,
    SourceCounts,
    join,
    merge_sources,
    reduce,
    rows,
    title_rows,
)
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location


def table_of(folder: Path, *counts: dict[tuple[str, int], float]) -> MentionTable:
    """A mention table from the counts of several shards."""
    reduce(pa.concat_tables([rows(shard) for shard in counts]), folder / "piece")
    join([folder / "piece"], folder)
    return MentionTable(Part("corpus", "0", Location(folder), {}))


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
    found = title_rows(["Apple (fruit)", "Paris, Texas"], [3, 4]).to_pylist()
    assert {(row["mention"], row["entity"], row["count"]) for row in found} == {
        ("Apple (fruit)", 3, 0.5),
        ("Apple", 3, 0.5),
        ("Paris, Texas", 4, 0.5),
        ("Paris", 4, 0.5),
    }


def merged(rows: list[tuple[str, int, int, float]], rule: MergeRule, uniform: tuple[int, ...] = ()) -> dict[int, float]:
    """Entity -> prior of the one mention that the rows (mention, entity, source, support) are about."""
    columns = zip(*sorted(rows), strict=True)
    _, entity, source, support = (np.array(column) for column in columns)
    found = merge_sources(
        SourceCounts(np.zeros(len(rows), np.int64), entity, source, support), rule=rule, uniform_sources=uniform
    )
    return dict(zip(found.entity.tolist(), found.prior.tolist(), strict=True))


TWO_INDEXES_AND_YAGO = [("m", 1, 0, 30.0), ("m", 2, 0, 10.0), ("m", 1, 1, 10.0), ("m", 2, 2, 1.0), ("m", 3, 2, 1.0)]


def test_paper_rule_averages_the_sources_that_know_the_mention() -> None:
    # links 30:10, web 10:0, YAGO 0:1:1 -> (3/4 + 1 + 0) / 3, (1/4 + 0 + 1/2) / 3, (0 + 0 + 1/2) / 3
    priors = merged(TWO_INDEXES_AND_YAGO, "paper", (2,))
    assert priors == pytest.approx({1: 1.75 / 3, 2: 0.75 / 3, 3: 0.5 / 3})
    assert merged(TWO_INDEXES_AND_YAGO[:2], "paper") == pytest.approx({1: 0.75, 2: 0.25})


def test_deep_ed_rule_adds_counts_then_yago_up_to_one() -> None:
    # counts 40:10 -> 0.8, 0.2; YAGO adds a half to its two
    assert merged(TWO_INDEXES_AND_YAGO, "deep-ed", (2,)) == pytest.approx({1: 0.8, 2: 0.7, 3: 0.5})
    assert merged([("m", 1, 0, 5.0), ("m", 1, 1, 1.0)], "deep-ed", (1,)) == {1: 1.0}
    assert merged([("m", 1, 1, 1.0), ("m", 2, 1, 1.0)], "deep-ed", (1,)) == {1: 0.5, 2: 0.5}


def test_the_rules_agree_where_links_are_the_only_source(tmp_path: Path) -> None:
    rows = [("m", entity, 0, float(entity % 7 + 1)) for entity in range(90)]
    assert merged(rows, "paper") == pytest.approx(merged(rows, "deep-ed"))
    assert sum(merged(rows, "paper").values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("surface", "mention", "rule"),
    [
        ("Apple", "Apple", "exact"),
        ("NEW YORK", "New York", "capitalised"),
        ("U.S.", "U.S.", "exact"),
        ("IBM", "IBM", "exact"),
        ("new york", "New York", "lower-cased"),
        ("iphone", "iPhone", "lower-cased"),
        ("(Apple)", "Apple", "without punctuation"),
        ("Apple's", "Apple", "without punctuation"),
        ("NEW YORK.", "New York", "without punctuation"),
        ("Pear", "", "unknown"),
        ("...", "", "unknown"),
    ],
)
def test_look_up_falls_back_in_order(tmp_path: Path, surface: str, mention: str, rule: str) -> None:
    counts = {("Apple", 1): 6.0, ("New York", 5): 9.0, ("U.S.", 6): 9.0, ("U.s.", 7): 1.0, ("Ibm", 8): 1.0}
    table = table_of(tmp_path, counts | {("IBM", 9): 5.0, ("iPhone", 10): 3.0, ("IPHONe", 11): 2.0})
    match = table.match(surface)
    assert (match.mention, match.rule) == (mention, rule)


def test_added_names_are_found_beside_those_of_the_table(mentions: MentionTable) -> None:
    before = mentions.candidates("New York")
    mentions.added = {
        "Pear": Senses.of([PriorCandidate(12, 1.0, 3.0)]),
        "Apple": Senses.of([PriorCandidate(0, 1.0, 8.0)]),
    }
    assert mentions.candidates("Pear") == [PriorCandidate(12, 1.0, 3.0)]
    # 8 counts of the table, 6 of them for entity 1, and 8 added ones for entity 0
    assert mentions.candidates("Apple") == [PriorCandidate(0, 0.625, 10.0), PriorCandidate(1, 0.375, 6.0)]
    assert mentions.candidates("New York") == before


def test_senses_are_a_sequence_of_candidates(mentions: MentionTable) -> None:
    senses = mentions.candidates("Apple")
    assert (len(senses), senses[0], [*senses[1:]]) == (2, senses.best, [PriorCandidate(0, 0.25, 2)])
