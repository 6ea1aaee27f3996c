import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.types import DeepEdError, Document, Mention

TEXT = "Scotland beat Australia."


def write(path: Path, *rows: Any) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return f"jsonl:{path}"


def test_one_document_a_line(tmp_path: Path) -> None:
    mentions = [{"start": 0, "end": 8, "title": "scotland_(team)"}, {"start": 14, "end": 23, "title": None}]
    spec = write(tmp_path / "a", {"name": "d", "text": TEXT, "mentions": mentions}, "", {"text": "x", "mentions": []})
    assert read_dataset(spec) == [Document("d", TEXT, (Mention(0, 8, "Scotland (team)"),)), Document("3", "x", ())]


def test_an_answer_of_the_endpoint_is_a_document(tmp_path: Path) -> None:
    entity = {"title": "Scotland", "page_id": 7, "probability": 0.9}
    answer = [
        {"start": 0, "end": 8, "surface": "Scotland", "entity": entity, "reason": None},
        {"start": 14, "end": 23, "surface": "Australia", "entity": None, "reason": "no entity is known by this name"},
    ]
    (document,) = read_dataset(write(tmp_path / "a", {"text": TEXT, "mentions": answer}))
    assert document.mentions == (Mention(0, 8, "Scotland"),)


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(json.dumps({"text": TEXT, "mentions": []}).encode()))
    assert read_dataset(f"jsonl:{tmp_path / 'a.gz'}")[0].text == TEXT


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("-DOCSTART- (1)", r"line 1: found '-DOCSTART- \(1\)'; expected \{\"name\""),
        ([1, 2], "line 1: found"),
        ({"text": TEXT}, "line 1: missing 'mentions'"),
        ({"text": 3, "mentions": []}, "found text '3'"),
        ({"text": TEXT, "mentions": [{"start": 0, "end": 8}]}, "missing 'title'"),
        ({"text": TEXT, "mentions": [{"start": 0, "end": 99, "title": "X"}]}, "0 to 99 does not lie within the text"),
        ({"text": TEXT, "mentions": [{"start": "0", "end": 8, "title": "X"}]}, "'0' to 8 does not lie"),
        ({"text": TEXT, "mentions": [{"start": 0, "end": 8, "title": ""}]}, "has title ''"),
    ],
)
def test_another_format_is_named_with_its_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(DeepEdError, match=message):
        read_dataset(write(tmp_path / "a", row))
