import json
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidate_lists import CandidateLists, ListedCandidate
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.types import DeepEdError, Document, Mention

HEADER = "doc_id\tmention_index\tmention\tgold_title\tgold_page_id\tcandidates\n"
TEXT = Document(
    "7 FRUIT", "Apple and U.S . firms", (Mention(0, 5, "Apple Inc.", 500, 0), Mention(10, 15, None, None, 1))
)


def write_list(folder: Path, *rows: tuple[str, int, str, list[list[object]]]) -> str:
    lines = [f"{doc}\t{place}\t{surface}\tX\t1\t{json.dumps(listed)}\n" for doc, place, surface, listed in rows]
    (folder / "lists.tsv").write_text(HEADER + "".join(lines))
    return f"ppr:{folder / 'lists.tsv'}"


def test_lists_are_found_by_document_and_number_whatever_the_spaces(tmp_path: Path) -> None:
    spec = write_list(tmp_path, ("7", 0, "Apple", [["apple_Inc.", 500, 9, 1]]), ("7", 1, "U.S.", []))
    lists = CandidateLists([spec])
    assert lists.find(TEXT, TEXT.mentions[0]) == [ListedCandidate("Apple Inc.", 500, 9)]
    assert lists.find(TEXT, TEXT.mentions[1]) == []
    assert lists.find(Document("8", "Apple", ()), Mention(0, 5, None, None, 0)) is None


def test_the_list_of_another_data_set_is_refused(tmp_path: Path) -> None:
    other = CandidateLists([write_list(tmp_path, ("7", 0, "Pear", []))])
    with pytest.raises(DeepEdError, match=r"Mention 0 of document 7 is 'Pear' in .* but 'Apple' in the data set"):
        other.check([TEXT])
    foreign = CandidateLists([write_list(tmp_path, ("9", 0, "Apple", []))])
    with pytest.raises(DeepEdError, match="has a list for none of the data set's mentions"):
        foreign.check([TEXT])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\n", "is not a ppr file: expected doc_id"),
        (HEADER + "7\tone\tApple\tX\t1\t[]\n", "line 2: invalid literal"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(DeepEdError, match=message):
        CandidateLists([f"ppr:{tmp_path / 'x'}"])


def test_entities_that_only_a_list_names_enter_the_catalogue(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    spec = write_list(tmp_path, ("7", 0, "Apple", [["Apple Inc.", 500, 9, 1], ["Orchard wine", 501, 99, 1]]))
    inputs = LinkerInputs(corpus_kb, CandidateConfig(), lists=CandidateLists([spec]))
    (candidates, _) = inputs.first_candidates(TEXT)
    assert [inputs.catalogue.title(each.entity_id) for each in candidates] == ["Orchard wine", "Apple Inc."]
    assert [each.prior for each in candidates] == pytest.approx([100 / 110, 10 / 110])
    wine = inputs.entity_vectors[candidates[0].entity_id]
    assert candidates[0].entity_id == len(inputs.catalogue) - 1
    assert wine @ inputs.entity_vectors[inputs.catalogue.require("Orchard")] > 0
    np.testing.assert_allclose(np.linalg.norm(wine), 1, atol=1e-5)


def test_gold_is_recognised_by_the_page_id_of_the_list(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    spec = write_list(tmp_path, ("7", 0, "Apple", [["Renamed firm", 500, 9, 1]]))
    inputs = LinkerInputs(corpus_kb, CandidateConfig(), lists=CandidateLists([spec]))
    ((_, encoded),) = inputs.encode(TEXT)
    assert encoded.gold[0] == 0
