from pathlib import Path

import pytest

from deeped_ray.artifacts import Part
from deeped_ray.corpus.priors import MentionTable, PriorCandidate, write_priors


@pytest.fixture
def mentions(tmp_path: Path) -> MentionTable:
    write_priors(tmp_path, {("Apple", 1): 6, ("Apple", 0): 2, ("New York", 5): 1})
    return MentionTable(Part("corpus", "0", tmp_path, {}))


def test_priors_are_shares_of_links_most_frequent_first(mentions: MentionTable) -> None:
    assert mentions.candidates("Apple") == [PriorCandidate(1, 0.75, 6), PriorCandidate(0, 0.25, 2)]


def test_surfaces_are_normalised_and_headlines_fall_back_to_title_case(mentions: MentionTable) -> None:
    assert mentions.candidates(" Apple\n") == mentions.candidates("Apple")
    assert mentions.candidates("NEW YORK") == [PriorCandidate(5, 1.0, 1)]


def test_an_unknown_surface_has_no_candidates(mentions: MentionTable) -> None:
    assert mentions.candidates("Pear") == []
    assert mentions.candidates("") == []


def test_equal_counts_are_ranked_by_entity_id(tmp_path: Path) -> None:
    write_priors(tmp_path, {("X", 9): 1, ("X", 3): 1})
    table = MentionTable(Part("corpus", "0", tmp_path, {}))
    assert [candidate.entity_id for candidate in table.candidates("X")] == [3, 9]
