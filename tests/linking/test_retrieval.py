import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import choice_kernels, fit_kernels, known_names, near_kernels, retrieval
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.encoding import EncodedDocument
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.known_names import KnownNames
from deeped_ray.linking.retrieval import SOURCES
from deeped_ray.types import DeepEdError, Document, Mention
from tests.conftest import copy_of

HOCKEY = "Montreal Canadiens and Toronto met for the Stanley Cup on the ice. The Canadiens won, said NHL officials."


@pytest.fixture(scope="module")
def inputs(corpus_kb: KnowledgeBase) -> LinkerInputs:
    return LinkerInputs(corpus_kb, CandidateConfig())


def document(text: str, *surfaces: str) -> Document:
    starts = [text.index(surface) for surface in surfaces]
    return Document("", text, tuple(Mention(i, i + len(s)) for i, s in zip(starts, surfaces, strict=True)))


def encoded(inputs: LinkerInputs, asked: Document) -> EncodedDocument:
    ((_, found),) = inputs.encode(asked)
    return found


def sources(inputs: LinkerInputs, asked: Document) -> list[dict[str, str]]:
    """Of every mention: title -> source."""
    found = encoded(inputs, asked)
    return [
        {
            inputs.catalogue.title(int(found.entities[found.candidates[i, s]])): SOURCES[found.sources[i, s]]
            for s in range(found.num_candidates[i])
        }
        for i in range(len(found))
    ]


def test_candidates_say_where_they_came_from(inputs: LinkerInputs) -> None:
    asked = document("Montreal Canadeins of the NHL", "Montreal Canadeins", "NHL")
    (misspelt, league) = sources(inputs, asked)
    assert misspelt["Montreal Canadiens"] == "name: typo"
    assert league["National Hockey League"] in ("prior", "name: initials")


def test_a_longer_name_of_the_document_hands_on_its_entities(inputs: LinkerInputs) -> None:
    asked = document(HOCKEY, "Montreal Canadiens", "Canadiens won")
    (_, short) = sources(inputs, replace(asked, mentions=(asked.mentions[0], Mention(71, 80))))
    assert "Montreal Canadiens" in short


def test_no_mention_keeps_more_than_it_may(inputs: LinkerInputs) -> None:
    found = encoded(inputs, document(HOCKEY, "Montreal", "Toronto", "Stanley Cup", "NHL"))
    assert found.num_candidates.max() <= CandidateConfig().num_candidates == 12
    assert found.evidence.shape == (*found.candidates.shape, retrieval.NUM_EVIDENCE)


def test_candidates_do_not_depend_on_the_order_of_mentions(inputs: LinkerInputs) -> None:
    asked = document(HOCKEY, "Montreal Canadiens", "Toronto", "Stanley Cup")
    backwards = replace(asked, mentions=asked.mentions[::-1])
    assert sources(inputs, asked) == sources(inputs, backwards)


def test_the_paper_s_candidates_stay_available(corpus_kb: KnowledgeBase) -> None:
    paper = LinkerInputs(corpus_kb, CandidateConfig(sources="prior", evidence="prior"))
    found = encoded(paper, document("Canadeins of Montreal", "Canadeins", "Montreal"))
    assert found.num_candidates[0] == 0  # the prior does not know the first
    assert found.evidence.shape[2] == 0


def test_evidence_about_the_prior_s_candidates_alone(corpus_kb: KnowledgeBase) -> None:
    known = LinkerInputs(corpus_kb, CandidateConfig(sources="prior"))
    found = sources(known, document("Canadeins of Montreal", "Canadeins", "Montreal"))
    assert found[0] == {}
    assert {*found[1].values()} == {"prior"}


@pytest.mark.parametrize(
    "surface", ["?", "x", "the", "\u0300", "x" * 2000, "東京", "a b c d e f g h i j k l m n", "\ufdfa", "1"]
)
def test_any_mention_gets_candidates_or_none(inputs: LinkerInputs, surface: str) -> None:
    found = encoded(inputs, document(f"Montreal met {surface} on the ice", surface))
    assert found.num_candidates[0] <= 12
    assert np.isfinite(found.evidence).all()


def best(rows: Sequence[tuple[int, int, float, float]], *, by_prior: int, by_score: int) -> list[int]:
    """Entities that are kept of (mention, entity, prior, score)."""
    mention, entity = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    prior, scores = (np.array([row[column] for row in rows], np.float32) for column in (2, 3))
    kept = np.empty(len(rows), np.int64)
    kept = kept[: choice_kernels.keep_best(mention, prior, scores, entity, by_prior, by_score, kept)]
    found: list[int] = entity[kept].tolist()
    return found


def test_the_best_by_prior_are_kept_and_then_the_best_by_score() -> None:
    pool = [(0, 1, 0.9, 0), (0, 2, 0.1, 0), (0, 3, 0, 0.5), (0, 4, 0, 0.9), (2, 5, 0, 0.1)]
    assert best(pool, by_prior=1, by_score=1) == [1, 4, 5]


def test_rows_are_chosen_by_what_is_known_now_not_by_earlier_scores() -> None:
    mention, entity, evidence = np.zeros(3, np.int64), np.array([7, 8, 9]), np.zeros((3, 2), np.float32)
    evidence[:, 1] = 3, 1, 2
    scores, weights, kept = np.array([0, 9, 0], np.float32), np.array([0, 2, 0], np.float32), np.empty(3, np.int64)
    assert choice_kernels.choose(mention, entity, evidence, scores, weights, 0, 2, kept) == 2
    assert entity[kept[:2]].tolist() == [7, 9]
    assert scores.tolist() == [6, 2, 4]


def test_titles_have_a_say_in_who_is_kept(inputs: LinkerInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = document(HOCKEY, "Montreal Canadiens", "Toronto")
    few = LinkerInputs(inputs._kb, CandidateConfig(kept_by_prior=1, kept_by_context=1))
    monkeypatch.setattr(
        retrieval, "_WEIGHTS_OF_ALL", np.eye(len(retrieval.EVIDENCE) + 1, dtype=np.float32)[retrieval.TITLES]
    )
    kept, all_rows = sources(few, asked), encoded(inputs, asked)
    assert all(len(each) <= 2 for each in kept)
    in_title = all_rows.evidence[1, : all_rows.num_candidates[1], retrieval.TITLES - 1]
    assert in_title.max() == encoded(few, asked).evidence[1, :2, retrieval.TITLES - 1].max()


def test_room_that_the_prior_leaves_goes_to_the_score() -> None:
    pool = [(0, entity, 0.0, entity / 10) for entity in range(6)]
    assert best(pool, by_prior=2, by_score=2) == [5, 4, 3, 2]


def test_the_best_are_those_that_sorting_finds_in_any_order() -> None:
    rng = np.random.default_rng(0)
    pool = [
        (i, int(entity), rng.integers(0, 4) / 4, rng.integers(0, 4) / 4)
        for i in range(3)
        for entity in rng.permutation(40)
    ]
    expected = []
    for i in range(3):
        rows = sorted((row for row in pool if row[0] == i), key=lambda row: (-row[2], -row[3], row[1]))
        first = [row for row in rows if row[2] > 0][:4]
        rest = sorted({*rows} - {*first}, key=lambda row: (-row[3], row[1]))[: 9 - len(first)]
        expected += [row[1] for row in rows if row in {*first, *rest}]
    assert best(pool, by_prior=4, by_score=5) == expected


@pytest.mark.parametrize("most", [1, 4, 9])
def test_the_entities_that_are_linked_most_are_those_that_sorting_finds(most: int) -> None:
    linked = np.sort(np.random.default_rng(0).integers(0, 8, 30)).astype(np.int32)
    entities, times = np.unique(linked, return_counts=True)
    expected = np.sort(entities[np.argsort(-times, kind="stable")][:most])
    found = np.empty(len(linked), np.int64)
    assert found[: near_kernels.most_linked(linked, most, found)].tolist() == expected.tolist()


def test_an_entity_of_two_sources_is_of_the_second() -> None:
    some, others = np.array([1, 2, 4]), np.array([2, 2, 3])
    merged, sources = np.empty((2, 6), np.int64)
    number = near_kernels.merge_sources(some, 7, others, 8, merged, sources)
    assert [*zip(merged[:number].tolist(), sources.tolist(), strict=False)] == [(1, 7), (2, 8), (3, 8), (4, 7)]


@pytest.mark.parametrize("num_near", [2, 50])  # fewer than a list has, or more
def test_letters_of_shared_words_are_counted(num_near: int) -> None:
    near, listed = np.arange(0, 2 * num_near, 2), np.array([1, 2, 4, 8, 0, 2], np.int32)
    letters = np.zeros((3, num_near), np.float32)
    lists, places = np.array([[0, 4, 5], [4, 6, 3], [6, 6, 7]]), np.array([[0, 2], [2, 3]])
    near_kernels.shared_letters(np.array([0, 1, 0]), places, lists, near, listed, letters)
    assert letters[0].tolist() == [3, 8, 5, 0, 5, *[0] * 50][:num_near]
    assert letters[2].tolist() == letters[0].tolist()  # the same name again
    assert not letters[1].any()


def test_shares_of_every_mention_add_up_to_one() -> None:
    shares = np.empty(5, np.float32)
    fit_kernels.shares_of(np.array([0, 0, 0, 2, 2]), np.array([1, 2, 3, 1000, -5], np.float32), shares)
    assert [shares[:3].sum(), shares[3:].sum()] == pytest.approx([1, 1])


def longer_names(inputs: LinkerInputs, surfaces: list[str], *, num_candidates: int) -> list[list[int]]:
    names, slots = inputs.retriever.names.take(surfaces)
    words = (names.contained, names.content, names.initials, names.acronym)
    n = len(surfaces)
    starts, found, firsts = np.zeros(n + 1, np.int64), np.empty(n * n, np.int64), num_candidates * np.arange(n + 1)
    near_kernels.longer_names(slots, *words, firsts, starts, found)
    return [each.tolist() for each in np.split(found[: starts[-1]], starts[1:-1])]


def test_longer_names_have_all_words_or_spell_the_acronym(inputs: LinkerInputs) -> None:
    surfaces = ["Chicago White Sox", "Sox", "IAEA", "International Atomic Energy Agency", "White House"]
    assert longer_names(inputs, surfaces, num_candidates=1) == [[], [0], [3], [], []]
    assert longer_names(inputs, ["White Sox", "Sox", "White Sox"], num_candidates=1) == [[], [0], []]
    assert longer_names(inputs, surfaces, num_candidates=0) == [[]] * 5  # they hand on what they have


def test_names_are_forgotten_when_there_is_no_room_for_more(
    inputs: LinkerInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["Montreal", "Toronto", "Stanley Cup", "Montreal Canadiens"]
    known = inputs.retriever.names
    expected = {surface: found.entity.tolist() for surface, found in known._know(asked).items()}
    for name in ("REMEMBERED", "MATCHES", "_WORDS"):
        monkeypatch.setattr(known_names, name, 2)
    small = KnownNames(known.index)
    for surfaces in (asked[:1], asked[1:3], asked, asked[:1], asked[::-1]):
        names, slots = small.take(surfaces)
        for surface, (start, end) in zip(surfaces, names.matched[slots].tolist(), strict=True):
            assert names.entity[start:end].tolist() == expected[surface]


def with_other_vectors(kb: KnowledgeBase) -> KnowledgeBase:
    part = kb.open("vectors")
    with kb.write("vectors", config=part.config, parents=[*part.record["parents"]]) as folder:
        shutil.copytree(part.path, folder, dirs_exist_ok=True)
        vectors = np.load(folder / "vectors.npy")
        np.save(folder / "vectors.npy", vectors[:, ::-1])
    return kb


def test_an_index_older_than_the_vectors_is_named(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = with_other_vectors(copy_of(corpus_kb, tmp_path / "kb"))
    with pytest.raises(DeepEdError) as error:
        _ = LinkerInputs(kb, CandidateConfig()).retriever
    expected = f"The index part of {kb} was made from an older vectors part. Run jobs/build_index.py --kb {kb} again."
    assert str(error.value) == expected


def test_an_index_of_another_knowledge_base_is_named(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb, other = copy_of(corpus_kb, tmp_path / "kb"), with_other_vectors(copy_of(corpus_kb, tmp_path / "other"))
    build_index(other, IndexConfig())
    assert LinkerInputs(other, CandidateConfig()).retriever
    manifest, record = kb.manifest(), other.manifest()["parts"]["index"]
    shutil.copytree(other.root / record["folder"], kb.root / record["folder"])
    manifest["parts"]["index"] = record
    kb.write_manifest(manifest)
    message = r"^The index part of .* made from another knowledge base's vectors part\. Run jobs/build_index\.py"
    with pytest.raises(DeepEdError, match=message):
        _ = LinkerInputs(kb, CandidateConfig()).retriever
