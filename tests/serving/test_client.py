"""The client and the spaCy component, against a real Serve. Against servers that misbehave: tests/test_client.py."""

import asyncio
from typing import Any

import pytest
import spacy

import deeped_ray
from deeped_ray import AsyncClient, Client, KnowledgeBase
from deeped_ray.client import pieces
from deeped_ray.types import UnknownEntityError
from tests.serving.conftest import Served

TEXT = "Montreal met Toronto in the Stanley Cup; Boston lead the League.\nApple sold more. Toronto won."


@pytest.fixture(scope="module")
def kb(served: Served) -> KnowledgeBase:
    return deeped_ray.open(served.kb)


@pytest.fixture
def ours(served: Served) -> Any:
    with Client(served.url) as client:
        yield client


@pytest.mark.parametrize("options", [{}, {"explain": False}, {"threshold": 0.9}, {"mentions": "all"}])
def test_the_answers_are_those_of_the_knowledge_base(ours: Client, kb: KnowledgeBase, options: Any) -> None:
    found = ours.link(TEXT, **options)
    assert found == kb.link(TEXT, **options)
    assert found.text == TEXT


def test_spans_are_answered_in_their_order(ours: Client, kb: KnowledgeBase) -> None:
    spans = [(28, 39), (0, 8), (13, 20)]
    found = ours.link(TEXT, spans)
    assert [each.entity for each in found] == [each.entity for each in kb.link(TEXT, spans)]
    assert {place for place, _ in found[0].support} == {1, 2}


def test_look_ups_are_those_of_the_knowledge_base(ours: Client, kb: KnowledgeBase) -> None:
    assert ours.entity("Stanley Cup") == kb.entity("Stanley Cup")
    assert ours.mention("Apple") == kb.mention("Apple")
    assert ours.mention("No such name") == kb.mention("No such name")
    assert ours.resembling("Montreal Canadeins", count=3) == kb.resembling("Montreal Canadeins", count=3)
    near = [ours.related("Stanley Cup", count=3), ours.related(text="a goalkeeper", count=3)]
    assert near == [kb.related("Stanley Cup", count=3), kb.related(text="a goalkeeper", count=3)]
    assert ours.relatedness("Apple Inc.", "IPhone") == pytest.approx(kb.relatedness("Apple Inc.", "IPhone"))
    assert ours.version()["deeped_ray"] == deeped_ray.__version__
    with pytest.raises(UnknownEntityError, match="Perhaps 'Stanley Cup'"):
        ours.entity("Stanley Cupp")


def test_a_text_is_cut_and_its_offsets_are_kept(ours: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_CHARACTERS", 50)
    whole = ours.link(TEXT)
    assert [each.surface for each in whole] == [TEXT[each.start : each.end] for each in whole]
    assert {"Montreal", "Stanley Cup", "Apple"} <= {each.surface for each in whole}
    assert {place for each in whole for place, _ in each.support} <= {*range(len(whole))}


def test_more_texts_than_a_request_may_have(ours: Client) -> None:
    found = ours.link_all(["Toronto won."] * 300, explain=False)
    assert {each.entity.title for (each,) in found if each.entity} == {found[0][0].entity.title}  # type: ignore[union-attr]
    assert len(found) == 300


def test_the_async_client_answers_the_same(served: Served, kb: KnowledgeBase) -> None:
    async def ask() -> Any:
        async with AsyncClient(served.url) as client:
            linked = asyncio.gather(*(client.link(TEXT) for _ in range(4)))
            return await asyncio.gather(linked, client.entity("Apple"), client.related("Apple", count=2))

    linked, apple, near = asyncio.run(ask())
    assert linked == [kb.link(TEXT)] * 4
    assert (apple, near) == (kb.entity("Apple"), kb.related("Apple", count=2))


def test_a_spacy_pipeline_asks_the_server(served: Served, kb: KnowledgeBase) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("deeped", config={"url": served.url})
    docs = [*nlp.pipe([TEXT] * 4, n_process=2, batch_size=2), nlp(TEXT)]
    assert [[ent._.deeped for ent in doc.ents] for doc in docs] == [kb.link(TEXT)] * 5
