"""A knowledge base as users hold it."""

from pathlib import Path

import pytest

import deeped_ray as deeped
from deeped_ray.knowledge import base
from deeped_ray.knowledge.changes import Change, ChangeLog
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from tests.conftest import copy_of

HOCKEY = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
FRUIT = deeped.Document("fruit", "The Apple was picked in the orchard.", (deeped.Mention(4, 9),))


@pytest.fixture(scope="module")
def kb(mini_kb: base.KnowledgeBase) -> deeped.KnowledgeBase:
    return deeped.open(mini_kb.root)


def test_names_are_linked_to_entities(kb: deeped.KnowledgeBase) -> None:
    montreal, *_ = kb.link(HOCKEY)
    assert montreal.entity is not None
    assert (montreal.surface, montreal.entity.title) == ("Montreal", "Montreal Canadiens")
    assert montreal.probability == montreal.entity.probability > 0.5


def test_answers_have_wikidata_ids_where_they_are_known(kb: deeped.KnowledgeBase) -> None:
    known = {
        each.title: each.wikidata
        for model in ("global", "prior")
        for each in kb.link(HOCKEY, model=model)[0].candidates
    }
    assert (known["Montreal"], known["Montreal Canadiens"]) == ("Q340", "Q188143")
    assert kb.entity("Q340") == kb.entity("Montreal")
    assert (kb.mention("Apple").candidates[0].wikidata, kb.entity("Stanley Cup").wikidata) == ("Q312", None)


def test_the_answers_are_those_of_the_linker(kb: deeped.KnowledgeBase, linker: Linker) -> None:
    assert kb.link(HOCKEY) == linker.link(HOCKEY)
    assert kb.link(HOCKEY, [(0, 8)]) == linker.link(HOCKEY, [(0, 8)])


def test_the_prior_answers_with_the_usual_entity(kb: deeped.KnowledgeBase) -> None:
    (montreal,) = kb.link(HOCKEY, [(0, 8)], model="prior")
    assert montreal.entity is not None
    assert montreal.entity.title == "Montreal"


def test_many_texts_are_linked_at_once(kb: deeped.KnowledgeBase) -> None:
    hockey, fruit = kb.link_all([HOCKEY, FRUIT])
    assert [mention.surface for mention in hockey] == [HOCKEY[start:end] for start, end in kb.detect(HOCKEY)]
    assert [mention.surface for mention in fruit] == ["Apple"]


def test_below_the_threshold_a_mention_has_no_entity(kb: deeped.KnowledgeBase) -> None:
    (montreal,) = kb.link(HOCKEY, [(0, 8)], threshold=0.9999)
    assert montreal.entity is None
    assert montreal.probability == 0.0


def test_reasons_can_be_left_out(kb: deeped.KnowledgeBase) -> None:
    assert all(mention.attended for mention in kb.link(HOCKEY))
    assert not any(mention.attended for mention in kb.link(HOCKEY, explain=False))


def test_a_linker_is_opened_once(kb: deeped.KnowledgeBase) -> None:
    assert kb.linker() is kb.linker("global")
    assert kb.linker("local") is not kb.linker("global")


def test_look_ups_and_linking_know_the_changes_to_entities(mini_kb: base.KnowledgeBase, tmp_path: Path) -> None:
    root = copy_of(mini_kb, tmp_path / "kb").root
    falcon = {"title": "Norrby Falcon", "aliases": ["Falcon"], "description": "Skates for the ice.", "wikidata": "Q88"}
    known = {"aliases": ["Silver Jug"], "wikidata": "Q99", "type": "person"}
    ChangeLog(base.KnowledgeBase(root).home).append(
        [Change("P7", falcon), Change("Stanley Cup", known), Change("Montreal", None)]
    )
    kb = deeped.open(root)
    assert kb.entity("P7") == kb.entity("Q88")
    assert kb.entity("Q99").title == kb.mention("Silver Jug").candidates[0].title == "Stanley Cup"
    assert kb.entity("Stanley Cup").is_person
    assert kb.relatedness("P7", "Stanley Cup") > kb.relatedness("P7", "Apple")
    assert "Montreal" not in {each.title for each in kb.mention("Montreal").candidates}
    with pytest.raises(deeped.DeepEdError, match="No entity 'Montreal'"):
        kb.entity("Montreal")
    assert kb.detect("My Falcon is new.") == [(3, 9)]
    assert kb.link("My Falcon is new.")[0].candidates[0].title == "Norrby Falcon"


def test_the_detector_can_be_set(mini_kb: base.KnowledgeBase) -> None:
    never = deeped.open(str(mini_kb.root), detection=DetectionConfig(mention_threshold=1 - 1e-12))
    assert never.detect(HOCKEY) == []
    assert never.link(HOCKEY) == []


def test_names_or_all_that_can_be_linked(kb: deeped.KnowledgeBase) -> None:
    for kind in ("names", "all"):
        spans = kb.detect(HOCKEY, mentions=kind)
        assert [(each.start, each.end) for each in kb.link(HOCKEY, mentions=kind)] == spans


def test_a_missing_knowledge_base_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(deeped.DeepEdError, match=r"No knowledge base at .*nowhere\. Run "):
        deeped.open(tmp_path / "nowhere")
