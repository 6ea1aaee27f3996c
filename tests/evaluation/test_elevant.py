import json
from pathlib import Path

import pytest

from deeped_ray.cli import main
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.report import evaluate_linker
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker


def test_labels_and_predictions_count_as_our_own_scores_do(
    mini_kb: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ELEVANT calls a prediction right if its span and entity are a label's."""
    file = tmp_path / "elevant.jsonl"
    given = ["--dataset", "mini:dev", "--model", "prior", "--elevant", str(file)]
    assert main(["evaluate", "--kb", str(mini_kb.root), *given]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    documents = read_dataset("mini:dev")
    assert [row["text"] for row in rows] == [document.text for document in documents]
    right = sum(label in row["predictions"] for row in rows for label in row["labels"])
    expected = evaluate_linker(Linker.open(mini_kb, "prior"), documents, dataset="mini:dev", model="prior").result
    assert right / expected.mentions == pytest.approx(expected.scores.accuracy)


def test_entities_are_named_by_wikidata_ids_or_pages(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    file = tmp_path / "elevant.jsonl"
    main(["evaluate", "--kb", str(mini_kb.root), "--dataset", "mini:dev", "--model", "prior", "--elevant", str(file)])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    named = {span["entity_reference"] for row in rows for span in row["labels"] + row["predictions"]}
    assert "Q340" in named  # Montreal
    assert any(each.startswith("https://en.wikipedia.org/wiki/") for each in named)


def test_one_file_is_of_one_linker(mini_kb: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--kb", str(mini_kb.root), "--elevant", str(tmp_path / "out.jsonl")]) == 2
    assert "one --model such as global" in capsys.readouterr().err
