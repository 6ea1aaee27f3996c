"""Looking into the knowledge base of the mini encyclopedia."""

import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.lookup import Lookup
from deeped_ray.types import UnknownEntityError


@pytest.fixture(scope="module")
def lookup(corpus_kb: KnowledgeBase) -> Lookup:
    return Lookup(corpus_kb).open_all()


def test_an_entity_is_found_by_title_with_its_counts(lookup: Lookup) -> None:
    entity = lookup.entity("apple Inc.")
    assert (entity.title, entity.url) == ("Apple Inc.", "https://en.wikipedia.org/wiki/Apple_Inc.")
    assert min(entity.num_links, entity.num_words, entity.page_id) > 0
    assert not entity.is_person


def test_an_unknown_title_names_those_that_resemble_it(lookup: Lookup) -> None:
    with pytest.raises(UnknownEntityError, match="Perhaps 'Montreal Canadiens'"):
        lookup.entity("Montreal Canadeins")


def test_a_name_has_its_senses_most_probable_first(lookup: Lookup) -> None:
    name = lookup.mention("Apple")
    assert [sense.title for sense in name.candidates[:1]] == ["Apple Inc."]
    assert sum(sense.prior for sense in name.candidates) == pytest.approx(1, abs=1e-3)
    assert lookup.mention("Zorblatt").candidates == ()


def test_related_entities_leave_out_what_was_asked_for(lookup: Lookup) -> None:
    near = lookup.related(["Stanley Cup", "Montreal Canadiens"], "ice hockey", count=5)
    assert len(near) == 5
    assert not {"Stanley Cup", "Montreal Canadiens"} & {each.title for each in near}
    assert "National Hockey League" in {each.title for each in near}
    assert near == sorted(near, key=lambda each: -each.similarity)


def test_relatedness_is_the_cosine_that_neighbours_are_ranked_by(lookup: Lookup) -> None:
    (nearest,) = lookup.related(["Stanley Cup"], count=1)
    assert lookup.relatedness("Stanley Cup", nearest.title) == pytest.approx(nearest.similarity, abs=1e-5)
    assert lookup.relatedness("Stanley Cup", "Stanley Cup") == pytest.approx(1, abs=1e-5)


def test_one_title_need_not_be_a_list(lookup: Lookup) -> None:
    assert lookup.related("Stanley Cup") == lookup.related(["Stanley Cup"], count=10)
