"""A manifest that was tampered with leads nowhere: not to be read, not to be deleted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import FormatError, check_records

SHA = "0" * 64
GOOD = {
    "id": "0123456789abcdef",
    "folder": "parts/pages-0123456789abcdef",
    "config": {},
    "parents": {},
    "files": {"numbers.npy": {"bytes": 1, "sha256": SHA}, "seeds/local.0.safetensors": {"bytes": 2, "sha256": SHA}},
}


def write_part(kb: KnowledgeBase, value: int) -> None:
    with kb.write("pages", config={"value": value}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.full(10, value))


def tamper(kb: KnowledgeBase, **fields: Any) -> None:
    path = kb.root / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parts"]["pages"] |= fields
    path.write_text(json.dumps(manifest))


def test_records_as_they_are_written_pass() -> None:
    check_records({"pages": GOOD}, where="here")
    check_records({}, where="here")


@pytest.mark.parametrize(
    "folder",
    ["../../etc", "/etc", "parts/../../etc", "parts/pages-0123456789abcdef/..", "parts/corpus-0123456789abcdef", "", 7],
)
def test_a_folder_that_is_not_the_parts_own_is_refused(folder: object) -> None:
    with pytest.raises(FormatError, match=r"here was not written by deeped-ray, or was changed since: 'pages' has the"):
        check_records({"pages": GOOD | {"folder": folder}}, where="here")


@pytest.mark.parametrize("part_id", ["../../../etc", "0123456789ABCDEF", "", 5, None])
def test_an_id_that_is_no_hash_is_refused(part_id: object) -> None:
    with pytest.raises(FormatError, match="has the id"):
        check_records({"pages": GOOD | {"id": part_id, "folder": f"parts/pages-{part_id}"}}, where="here")


@pytest.mark.parametrize(
    "file", ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", "a/", "a\0b", "a\\b", "C:x", ".hidden", "é", "a\n"]
)
def test_a_file_outside_its_folder_is_refused(file: str) -> None:
    with pytest.raises(FormatError, match="has a file"):
        check_records({"pages": GOOD | {"files": {file: {"bytes": 1, "sha256": SHA}}}}, where="here")


@pytest.mark.parametrize(
    "parts",
    [
        ["pages"],
        {"../pages": GOOD},
        {"pages": "parts/pages"},
        {"pages": {"id": GOOD["id"]}},
        {"pages": GOOD | {"parents": ["corpus"]}},
        {"pages": GOOD | {"files": {"a.npy": "0"}}},
        {"pages": GOOD | {"files": {"a.npy": {"bytes": None, "sha256": SHA}}}},
    ],
)
def test_records_of_another_shape_are_refused(parts: object) -> None:
    with pytest.raises(FormatError):
        check_records(parts, where="here")


@pytest.mark.parametrize(
    "use",
    [
        lambda kb: kb.open("pages"),
        lambda kb: kb.last("pages"),
        lambda kb: kb.verify(),
        lambda kb: kb.is_current("pages", config={}, parents=()),
        lambda kb: write_part(kb, 2),
    ],
)
def test_what_a_tampered_manifest_names_is_neither_read_nor_deleted(
    tmp_path: Path, use: Callable[[KnowledgeBase], object]
) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    write_part(kb, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    np.save(outside / "numbers.npy", np.full(10, 1))
    tamper(kb, folder="../outside")
    with pytest.raises(FormatError, match=r"the folder '\.\./outside'"):
        use(kb)
    assert (outside / "numbers.npy").exists()
