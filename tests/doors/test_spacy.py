"""The component in a real spaCy, on the knowledge base of the mini encyclopedia."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, Span, SpanGroup

import deeped_ray
from deeped_ray.doors.spacy import SpansError, make
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import DeepEdError, Prediction

TEXT = "Montreal met Toronto in the Stanley Cup on Monday."


def pipeline(kb: KnowledgeBase, **config: Any) -> Any:
    """Blank English with a component of its own that finds two names and a day."""
    nlp = spacy.blank("en")
    ruler: Any = nlp.add_pipe("entity_ruler")
    names = [("ORG", "Montreal"), ("ORG", "Toronto"), ("DATE", "Monday"), ("ORG", "Nobody knows")]
    ruler.add_patterns([{"label": label, "pattern": name} for label, name in names])
    nlp.add_pipe("deeped", config={"kb": str(kb.root), **config})
    return nlp


@pytest.fixture(scope="module")
def nlp(mini_kb: KnowledgeBase) -> Any:
    return pipeline(mini_kb)


def test_the_pipelines_own_entities_are_linked(nlp: Any, mini_kb: KnowledgeBase) -> None:
    montreal, toronto, monday = nlp(TEXT).ents
    expected = deeped_ray.open(mini_kb.root).link(TEXT, [(0, 8), (13, 20)])
    assert [montreal.kb_id_, toronto.kb_id_] == [each.entity.title for each in expected if each.entity]
    assert (monday.kb_id_, monday._.deeped, monday.label_) == ("", None, "DATE")


def test_an_entity_has_the_linkers_prediction(nlp: Any, mini_kb: KnowledgeBase) -> None:
    expected = deeped_ray.open(mini_kb.root).link(TEXT, [(0, 8), (13, 20)])
    assert [ent._.deeped for ent in nlp(TEXT).ents[:2]] == expected
    assert all(isinstance(ent._.deeped, Prediction) and ent._.deeped.attended for ent in nlp(TEXT).ents[:2])


def test_without_entities_the_linker_finds_them(mini_kb: KnowledgeBase) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("deeped", config={"kb": str(mini_kb.root), "ids": "wikidata", "label": "NAME"})
    doc = nlp("Montreal met Toronto in the Stanley Cup.")
    found = [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents]
    ids = [ent._.deeped.entity.wikidata or "" for ent in doc.ents]
    assert found == [*zip(("Montreal", "Toronto", "Stanley Cup"), ["NAME"] * 3, ids, strict=True)]
    assert ids[0] in ("Q340", "Q188143")  # the city or the team


def test_a_mention_inside_a_token_gets_the_whole_token(mini_kb: KnowledgeBase) -> None:
    nlp = spacy.blank("en")
    linker = nlp.add_pipe("deeped", config={"kb": str(mini_kb.root)})
    doc = Doc(nlp.vocab, words=["Montreal/Toronto", "won", "."], spaces=[True, False, False])
    (ent,) = linker(doc).ents
    assert ent.text == "Montreal/Toronto"
    assert ent._.deeped.surface in ("Montreal", "Toronto")


def test_an_entity_without_an_answer_says_why(nlp: Any, mini_kb: KnowledgeBase) -> None:
    unsure = pipeline(mini_kb, threshold=1.0)
    montreal = unsure(TEXT).ents[0]
    assert montreal.kb_id_ == ""
    assert "below the threshold" in montreal._.deeped.reason
    assert montreal._.deeped.candidates


def test_batches_and_processes_give_the_same(nlp: Any) -> None:
    texts = [TEXT, "", "Toronto lost.", "no names"] * 3
    alone = [nlp(text).to_json() for text in texts]
    assert [doc.to_json() for doc in nlp.pipe(texts, batch_size=5)] == alone
    apart = [*nlp.pipe(texts, n_process=2, batch_size=3)]  # forked after this process has linked
    assert [doc.to_json() for doc in apart] == alone
    assert apart[0].ents[0]._.deeped == nlp(TEXT).ents[0]._.deeped


def test_a_pipeline_is_saved_and_loaded(nlp: Any, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline")(TEXT).to_json() == nlp(TEXT).to_json()


def test_a_pipeline_becomes_bytes_and_comes_back(mini_kb: KnowledgeBase) -> None:
    nlp = spacy.blank("en")  # alone: spaCy's ruler forgets its patterns on this way
    nlp.add_pipe("deeped", config={"kb": str(mini_kb.root), "ids": "wikidata"})
    again = spacy.blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert again(TEXT).to_json() == nlp(TEXT).to_json()


def test_a_document_is_saved_with_its_predictions(nlp: Any) -> None:
    doc = nlp(TEXT)
    again = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert again.ents[1]._.deeped == doc.ents[1]._.deeped
    assert doc[2:6].as_doc(copy_user_data=True).ents[0]._.deeped == doc.ents[1]._.deeped


def group(nlp: Any, *places: tuple[int, int]) -> Any:
    doc = nlp.make_doc(TEXT)
    doc.spans["sc"] = SpanGroup(doc, spans=[Span(doc, start, end, "ORG") for start, end in places])
    return doc


@pytest.fixture(scope="module")
def of_groups(mini_kb: KnowledgeBase) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("deeped", config={"kb": str(mini_kb.root), "spans_key": "sc"})
    return nlp


def test_a_span_group_is_linked(of_groups: Any) -> None:
    doc = of_groups(group(of_groups, (2, 3), (5, 7)))
    assert [span._.deeped.surface for span in doc.spans["sc"]] == ["Toronto", "Stanley Cup"]
    assert doc.spans["sc"][1].kb_id_ == "Stanley Cup"
    assert doc.ents == ()


@pytest.mark.parametrize(
    ("places", "problem"),
    [([(4, 7), (5, 7)], "'the Stanley Cup' and 'Stanley Cup' overlap, from token 5"), ([(3, 3)], "token 3 is empty")],
)
def test_spans_that_overlap_or_are_empty_are_refused(of_groups: Any, places: Any, problem: str) -> None:
    with pytest.raises(SpansError, match=re.escape(problem)):
        of_groups(group(of_groups, *places))
    with pytest.raises(SpansError, match="no span group 'sc'"):
        of_groups(TEXT)


def test_one_bad_document_of_a_batch_goes_to_the_error_handler(of_groups: Any) -> None:
    failed: list[str] = []
    of_groups.set_error_handler(lambda name, component, docs, error: failed.append(str(error)))
    docs = [group(of_groups, (2, 3)), group(of_groups, (3, 3)), group(of_groups, (5, 7))]
    linked = [*of_groups.pipe(docs)]
    assert [doc.spans["sc"][0]._.deeped.surface for doc in linked] == ["Toronto", "Stanley Cup"]
    assert len(failed) == 1


@pytest.mark.parametrize("config", [{}, {"kb": "kb", "url": "http://127.0.0.1"}])
def test_it_wants_a_knowledge_base_or_a_server(config: dict[str, str]) -> None:
    with pytest.raises(DeepEdError, match="Give the component `deeped` a `kb`, or the `url`"):
        spacy.blank("en").add_pipe("deeped", config=config)


def test_spacy_finds_the_component_by_itself() -> None:
    project = (Path(__file__).parent.parent.parent / "pyproject.toml").read_text()
    ((name, value),) = re.findall(r'\[project\.entry-points\.spacy_factories\]\n(\w+) = "(.+)"', project)
    assert EntryPoint(name, value, "spacy_factories").load() is make
