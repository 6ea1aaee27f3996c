"""The linker on the mini encyclopedia: answers, reasons, and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.linking import groups as groups_module
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.groups import windows_of
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.scoring import FittedModel
from deeped_ray.types import DeepEdError, Document, Mention

HOCKEY = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
TWO = [(0, 8), (13, 20)]


def test_context_overrules_the_most_common_sense(linker: Linker) -> None:
    answers = linker.link(HOCKEY, [*TWO, (41, 47)])
    titles = [answer.entity.title for answer in answers if answer.entity]
    assert titles == ["Montreal Canadiens", "Toronto Maple Leafs", "Boston Bruins"]
    usual = [max(answer.candidates, key=lambda candidate: candidate.prior).title for answer in answers]
    assert usual == ["Montreal", "Toronto", "Boston"]


def test_answers_explain_themselves(linker: Linker) -> None:
    (montreal,) = linker.link(HOCKEY, [(0, 8)])
    words = dict(montreal.attended)
    assert words.keys() >= {"Hockey", "League", "Stanley"}
    assert sum(words.values()) == pytest.approx(1, abs=1e-4)
    of_candidates = sum(candidate.probability for candidate in montreal.candidates)
    assert of_candidates + montreal.none_probability == pytest.approx(1, abs=1e-4)
    assert montreal.candidates == tuple(sorted(montreal.candidates, key=lambda candidate: -candidate.score))


def test_an_unknown_name_gets_a_reason_and_does_not_disturb_the_others(linker: Linker) -> None:
    text = f"{HOCKEY} Zorblatt watched."
    alone = linker.link(text, TWO)
    start = text.index("Zorblatt")
    with_unknown = linker.link(text, [*TWO, (start, start + 8)])
    assert with_unknown[2].entity is None
    assert with_unknown[2].reason == "no entity is known by this name, or by one that resembles it"
    assert [p.entity.title for p in with_unknown[:2] if p.entity] == [p.entity.title for p in alone if p.entity]
    assert with_unknown[0].candidates[0].score == pytest.approx(alone[0].candidates[0].score, abs=1e-5)


def test_raw_text_is_answered_for_the_mentions_found_in_it(linker: Linker) -> None:
    found = linker.link(HOCKEY)
    assert [answer.surface for answer in found] == [
        "Montreal",
        "Toronto",
        "Stanley Cup",
        "Boston",
        "National Hockey League",
    ]
    assert found == linker.link(HOCKEY, [(answer.start, answer.end) for answer in found])


def test_a_misspelt_name_gets_the_entities_whose_names_resemble_it(linker: Linker) -> None:
    text = "The Montreal Canadeins lead the league on the ice."
    (answer,) = linker.link(text, [(4, 22)])
    assert (answer.candidates[0].title, answer.candidates[0].prior) == ("Montreal Canadiens", 0.0)


def test_candidates_know_their_address(linker: Linker) -> None:
    (answer, *_) = linker.link(HOCKEY, TWO)
    assert answer.entity is not None
    assert answer.entity.url == "https://en.wikipedia.org/wiki/Montreal_Canadiens"


def test_support_comes_from_mentions_of_the_same_topic(linker: Linker) -> None:
    answers = linker.link(HOCKEY)
    by_surface = {answer.surface: answer for answer in answers}
    weights = dict(by_surface["Montreal"].support)
    assert 0 not in weights  # nobody supports himself
    assert all(0 <= place < len(answers) for place in weights)
    assert weights[4] > 0  # National Hockey League speaks for the team rather than for the city


def test_without_explanations_the_answers_are_the_same(linker: Linker) -> None:
    documents = [linker.document(HOCKEY)]
    (plain,), (explained,) = linker.link_batch(documents, explain=False), linker.link_batch(documents)
    assert [answer.candidates for answer in plain] == [answer.candidates for answer in explained]
    assert not any(answer.attended or answer.support for answer in plain)


def test_a_threshold_takes_the_answer_and_leaves_the_candidates(linker: Linker) -> None:
    (answer, *_) = linker.link(HOCKEY, TWO)
    refused = answer.at_least(0.9999)
    assert refused.entity is None
    assert refused.candidates == answer.candidates
    assert "below the threshold 0.9999" in str(refused.reason)
    assert answer.at_least(0.0) is answer


def test_a_document_gets_the_same_bytes_alone_and_in_any_batch(linker: Linker) -> None:
    rng = np.random.default_rng(0)
    sentences = [*HOCKEY.split("; "), "Boston beat Paris.", "Apple grew in Montreal.", "Zorblatt met Canadeins."]
    texts = [" ".join(rng.choice(sentences, rng.integers(1, 9))) for _ in range(200)]
    documents = [linker.document(text) for text in texts]
    alone = [linker.link_batch([document])[0] for document in documents]
    for _ in range(2):
        order = rng.permutation(len(documents))
        parts = np.split(order, np.sort(rng.choice(len(order), 12, replace=False)))
        together = [each for part in parts for each in linker.link_batch([documents[number] for number in part])]
        assert together == [alone[number] for number in order]


ELSEWHERE = """
import sys
from deeped_ray.linking.linker import Linker
print([*Linker.open(sys.argv[1]).link(sys.argv[2])])
"""


def test_a_document_gets_the_same_bytes_in_another_process(linker: Linker, mini_kb: KnowledgeBase) -> None:
    command = [sys.executable, "-c", ELSEWHERE, str(mini_kb.root), HOCKEY]
    found = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert [each.stdout for each in found] == [f"{[*linker.link(HOCKEY)]}\n"] * 2


def test_answers_come_in_the_order_of_the_spans(linker: Linker) -> None:
    forward = linker.link(HOCKEY, TWO)
    backward = linker.link(HOCKEY, TWO[::-1])
    assert [p.surface for p in backward] == ["Toronto", "Montreal"]
    assert backward[0].candidates[0].score == pytest.approx(forward[1].candidates[0].score, abs=1e-5)


def test_an_empty_document_has_no_answers(linker: Linker) -> None:
    assert linker.link("", []) == []
    assert linker.link_batch([Document("empty", "", ())]) == [[]]


@pytest.mark.parametrize("spans", [[(5, 5)], [(7, 2)]])
def test_empty_spans_are_refused(linker: Linker, spans: list[tuple[int, int]]) -> None:
    with pytest.raises(DeepEdError, match="is empty"):
        linker.link("Short text.", spans)


@pytest.mark.parametrize("spans", [[(0, 99)], [(-1, 3)]])
def test_spans_outside_the_text_are_refused(linker: Linker, spans: list[tuple[int, int]]) -> None:
    with pytest.raises(DeepEdError, match="does not lie within the text"):
        linker.link("Short text.", spans)


def test_overlapping_spans_are_refused(linker: Linker) -> None:
    with pytest.raises(DeepEdError, match="2:6 and 5:8 overlap"):
        linker.link("Some longer text.", [(5, 8), (2, 6)])


def test_documents_of_a_batch_are_linked_independently(linker: Linker) -> None:
    hockey = Document("a", HOCKEY, (Mention(0, 8), Mention(13, 20)))
    fruit = Document("b", "The Apple was picked in the orchard.", (Mention(4, 9),))
    together, alone = (
        linker.link_batch([hockey, fruit]),
        [linker.link_batch([document])[0] for document in (hockey, fruit)],
    )
    for batched, single in zip(together, alone, strict=True):
        assert [answer.surface for answer in batched] == [answer.surface for answer in single]
        for one, other in zip(batched, single, strict=True):
            assert [c.title for c in one.candidates] == [c.title for c in other.candidates]
            assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-4)


def test_a_document_of_many_mentions_is_linked_in_windows(linker: Linker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "MAX_JOINT_MENTIONS", 4)
    text = "Scotland and Australia. " * 5
    mentions = [Mention(i, i + 8) for i in range(0, len(text), 24)] + [
        Mention(i + 13, i + 22) for i in range(0, len(text), 24)
    ]
    answers = linker.link_batch([Document("many", text, tuple(mentions))])[0]
    assert [answer.surface for answer in answers] == ["Scotland"] * 5 + ["Australia"] * 5


@pytest.mark.parametrize("num_mentions", [1, 9, 10, 11, 15, 16, 20, 57])
def test_windows_overlap_and_answer_every_mention_once(num_mentions: int) -> None:
    mentions = [Mention(2 * i, 2 * i + 1) for i in range(num_mentions)]
    windows = windows_of(mentions[::-1], size=10)
    answered = [i for window in windows for i, is_answered in zip(*window, strict=True) if is_answered]
    assert sorted(answered) == list(range(num_mentions))
    assert all(len(window.mentions) <= 10 for window in windows)
    for window in windows:  # within a long document every mention sees a few to each side of it
        for place, is_answered in enumerate(window.is_answered):
            reversed_place = num_mentions - 1 - window.mentions[place]
            at_rim = reversed_place < 2 or reversed_place >= num_mentions - 2
            assert not is_answered or at_rim or 2 <= place < len(window.mentions) - 2 or len(windows) == 1


def test_a_document_of_a_thousand_mentions_is_linked(linker: Linker) -> None:
    text = HOCKEY + " "
    document = Document(
        "long", text * 500, tuple(Mention(i + s, i + e) for i in range(0, 500 * len(text), len(text)) for s, e in TWO)
    )
    answers = linker.link_batch([document])[0]
    assert len(answers) == 1000
    assert {answer.entity.title for answer in answers[400:600] if answer.entity} == {
        "Montreal Canadiens",
        "Toronto Maple Leafs",
    }


def test_the_prior_linker_takes_the_most_common_sense(mini_kb: KnowledgeBase) -> None:
    (montreal,) = Linker.open(mini_kb, "prior").link(HOCKEY, [(0, 8)])
    assert montreal.entity is not None
    assert montreal.entity.title == "Montreal"


def test_the_prior_linker_needs_only_the_corpus(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    shutil.copytree(mini_kb.root, tmp_path / "kb")
    manifest = json.loads((tmp_path / "kb" / "manifest.json").read_text())
    manifest["parts"] = {name: manifest["parts"][name] for name in ("pages", "corpus")}
    (tmp_path / "kb" / "manifest.json").write_text(json.dumps(manifest))
    (montreal,) = Linker.open(tmp_path / "kb", "prior").link(HOCKEY, [(0, 8)])
    assert montreal.entity is not None
    assert montreal.entity.title == "Montreal"


def test_a_knowledge_base_without_a_model_names_the_job(local_ray_session: None, tmp_path: object) -> None:
    kb = KnowledgeBase(str(tmp_path), create=True)
    with pytest.raises(ArtifactError, match=r"No linker part .* jobs/train_linker\.py"):
        Linker.open(kb)


def test_weights_of_another_shape_are_named(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    save_file({"A": torch.ones(7)}, tmp_path / "global.safetensors")
    with pytest.raises(ArtifactError, match=r"does not fit a global model for 100-dimensional vectors.*train_linker"):
        FittedModel.load(tmp_path / "global.safetensors", "global", ModelConfig(), dimension=100)
    (tmp_path / "global.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ArtifactError, match=r"Cannot read .*global.safetensors.*train_linker"):
        FittedModel.load(tmp_path / "global.safetensors", "global", ModelConfig(), dimension=100)


def test_a_model_fitted_to_other_vectors_is_refused(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    shutil.copytree(mini_kb.root, tmp_path / "kb")
    kb = KnowledgeBase(tmp_path / "kb")
    part = kb.open("vectors")
    with kb.write("vectors", config={**part.config, "note": "others"}, parents=("corpus", "words")) as folder:
        for path in part.path.iterdir():
            shutil.copy(path, folder / path.name)
        np.save(folder / "vectors.npy", -np.asarray(part.array("vectors")))
    with pytest.raises(ArtifactError, match=r"linker.*vectors.*jobs/train_linker\.py"):
        Linker.open(kb)


def test_a_model_that_was_not_fitted_is_named(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    shutil.copytree(mini_kb.root, tmp_path / "kb")
    kb = KnowledgeBase(tmp_path / "kb")
    part = kb.open("linker")
    with kb.write("linker", config=part.config, parents=("corpus", "words", "vectors")) as folder:
        shutil.copy(part.path / "local.safetensors", folder)
    with pytest.raises(
        ArtifactError, match=r"has no global model\. Run jobs/train_linker\.py --kb \S+/kb --model both"
    ):
        Linker.open(kb)
