"""Documents in Parquet and JSON lines: partitions that depend on the files alone, and bad rows in their places."""

import bz2
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deeped_ray.batch import documents as document_files
from deeped_ray.batch.documents import (
    DocumentError,
    Partition,
    Row,
    inspect_files,
    line_blocks,
    line_cuts,
    name_of,
    partitions_of,
    read_rows,
    text_of,
)
from deeped_ray.storage.location import Location, StorageError
from deeped_ray.types import DeepEdError
from tests.s3 import S3, prefix


def cut(file: Location, *, most: int) -> list[Partition]:
    infos = inspect_files([file])
    blocks = line_blocks(file, infos[0]) if infos[0].kind == "lines" else []
    return partitions_of([file], infos, {block: line_cuts(block, most) for block in blocks}, most=most)


def rows_of(file: Location, *, most: int = 1000, max_line_bytes: int = 10_000) -> list[Row]:
    return [row for partition in cut(file, most=most) for row in read_rows(partition, max_line_bytes=max_line_bytes)]


def outcome(row: Row) -> str:
    return row.content.kind if isinstance(row.content, DocumentError) else str(row.content["text"])


def write(path: Path, content: bytes) -> Location:
    path.write_bytes(content)
    return Location(path)


@given(
    texts=st.lists(st.text(st.sampled_from("ab\u00e9"), max_size=50) | st.none(), max_size=30),
    most=st.integers(1, 40),
    ends=st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_are_read_once_wherever_they_are_cut(
    texts: list[str | None], most: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "LINE_BLOCK_BYTES", 97)
    monkeypatch.setattr(document_files, "READ_BYTES", 31)
    lines = ["" if text is None else json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    file = write(tmp_path / "a.jsonl", ("\n".join(lines) + ("\n" if ends else "")).encode())
    assert [(row.number, outcome(row)) for row in rows_of(file, most=most)] == [
        (number, text) for number, text in enumerate(texts) if text is not None
    ]
    assert all(partition.num_rows and partition.num_rows <= most for partition in cut(file, most=most))


@pytest.mark.parametrize("group_rows", [7, 128, 300, 5000])
@pytest.mark.parametrize("most", [64, 333, 10_000])
def test_rows_of_parquet_are_read_once_whatever_its_groups(tmp_path: Path, group_rows: int, most: int) -> None:
    texts = [f"text {number}" for number in range(1000)]
    pq.write_table(pa.table({"more": texts, "text": texts}), tmp_path / "a.parquet", row_group_size=group_rows)
    rows = rows_of(Location(tmp_path / "a.parquet"), most=most)
    assert [(row.number, outcome(row)) for row in rows] == list(enumerate(texts))
    assert all(list(row.content) == ["text"] for row in rows if not isinstance(row.content, DocumentError))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_a_compressed_file_is_one_partition_and_damage_ends_it(tmp_path: Path, compress: Any) -> None:
    content = b"".join(b'{"text": "%d"}\n' % number for number in range(30_000))
    file = write(tmp_path / "a", compress(content))
    assert len(cut(file, most=10)) == 1
    assert [outcome(row) for row in rows_of(file)][-1] == "29999"
    write(tmp_path / "a", compress(content)[:-9])
    found = [outcome(row) for row in rows_of(file)]
    assert found[-1] == "unreadable"
    assert found[:-1] == [str(number) for number in range(len(found) - 1)]


def test_a_bad_line_is_reported_in_its_place(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"text": "after a byte order mark"}',
        b"no json",
        b'{"text": "half',
        b"[1, 2]",
        b'{"text": "\xff"}',
        b"[" * 5000,
        b'{"text": "%s"}' % (b"x" * 20_000),
        b'{"text": "the last, without an end"}',
    ]
    found = [outcome(row) for row in rows_of(write(tmp_path / "a", b"\n".join(lines)))]
    assert found[0] == "after a byte order mark"
    assert found[1:6] == ["not_json"] * 5
    assert found[6:] == ["too_long", "the last, without an end"]


def test_text_of_parquet_that_is_no_text_is_reported_in_its_place(tmp_path: Path) -> None:
    good, bad = pa.array([b"good", b"\xff\xfe", None], pa.binary()), pa.string()
    pq.write_table(pa.table({"text": pa.Array.from_buffers(bad, 3, good.buffers())}), tmp_path / "a.parquet")
    rows = rows_of(Location(tmp_path / "a.parquet"))
    assert [outcome(row) for row in rows] == ["good", "bad_text", "None"]


def test_a_damaged_parquet_file_has_all_its_rows(tmp_path: Path) -> None:
    texts = [f"text {number} {number * 7919 % 1000}" for number in range(5000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1000, use_dictionary=False)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(2).column(0)
    content[group.data_page_offset : group.data_page_offset + 2000] = b"\xff" * 2000
    rows = rows_of(write(tmp_path / "a.parquet", bytes(content)))
    assert [row.number for row in rows] == list(range(5000))
    assert [outcome(row) for row in rows[:2000]] == texts[:2000]
    assert {outcome(row) for row in rows[2000:3000]} == {"unreadable"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"plain text\n", r"begins with b'plain text\\n'. Expected Parquet .* or JSON lines"),
        ("a.parquet", b"PAR1 and no more", "Cannot read .*a.parquet: "),
    ],
)
def test_a_file_that_holds_no_documents_is_told_before_any_work(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(DeepEdError, match=message):
        inspect_files([write(tmp_path / name, content)])


@pytest.mark.parametrize("column", [{"body": ["x"]}, {"text": [1]}])
def test_parquet_without_texts_is_told_before_any_work(tmp_path: Path, column: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(column), tmp_path / "a.parquet")
    with pytest.raises(DeepEdError, match="a column `text`"):
        inspect_files([Location(tmp_path / "a.parquet")])


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_has_no_documents(tmp_path: Path, content: bytes) -> None:
    assert rows_of(write(tmp_path / "a", content)) == []


@pytest.mark.parametrize(
    "spans", [[[0, 1], [2, 4]], [{"start": 0, "end": 1, "title": "A"}, {"start": 2, "end": 4}], [(0, 1), (2, 4)]]
)
@pytest.mark.parametrize("key", ["spans", "mentions"])
def test_spans_come_as_pairs_or_with_names(key: str, spans: list[Any]) -> None:
    assert text_of({"text": "a bc", key: spans}, max_characters=10).spans == [(0, 1), (2, 4)]
    assert text_of({"text": "a bc", key: None}, max_characters=10).spans is None
    assert text_of({"text": "a bc", key: []}, max_characters=10).spans == []


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({}, "no_text"),
        ({"text": None}, "no_text"),
        ({"text": 5}, "bad_text"),
        ({"text": ["a"]}, "bad_text"),
        ({"text": "a\0b"}, "bad_text"),
        ({"text": "a\ud800b"}, "bad_text"),
        ({"text": "x" * 11}, "too_long"),
        *(
            ({"text": "abcd", "spans": spans}, "bad_spans")
            for spans in (
                "ab",
                3,
                [[0]],
                [[0, 9]],
                [[1, 1]],
                [[-1, 1]],
                [[0, 2], [1, 3]],
                [[0, True]],
                [{"start": 0}],
                [0],
            )
        ),
    ],
)
def test_what_is_no_document_is_told_by_kind(content: dict[str, Any], kind: str) -> None:
    with pytest.raises(DocumentError, match=rf"^{kind}: ") as error:
        text_of(content, max_characters=10)
    assert error.value.kind == kind


def test_control_characters_are_text() -> None:
    assert text_of({"text": "a\x0c\x01\u2028b"}, max_characters=10).text == "a\x0c\x01\u2028b"


def test_a_name_is_a_string_or_nothing() -> None:
    assert [name_of(row) for row in ({"id": 7}, {"name": "n"}, {"id": None, "name": "n"}, {})] == ["7", "n", "n", None]
    assert name_of({"id": "\ud800"}) == r"\ud800"
    assert name_of(DocumentError("not_json", "")) is None


def test_files_elsewhere_are_read_in_pieces_and_asked_for_again(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path))
    folder, texts = Location(prefix("documents")), [f"text {number}" for number in range(500)]
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    pq.write_table(pa.table({"text": texts}), buffer := io.BytesIO(), row_group_size=200)
    for name, content in (("a", lines), ("b", gzip.compress(lines)), ("c", buffer.getvalue())):
        (folder / name).write_bytes(content)
        with s3.failing(0.1):
            assert [outcome(row) for row in rows_of(folder / name, most=300)] == texts
    partitions = cut(folder / "c", most=300)
    monkeypatch.setenv("DEEPED_STORAGE_PATIENCE_S", "0")
    with s3.gone(), pytest.raises(StorageError):  # not taken for a damaged file
        list(read_rows(partitions[0], max_line_bytes=1000))
    assert not (tmp_path / "files").exists()
