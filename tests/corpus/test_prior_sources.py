import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deeped_ray.corpus.prior_sources import NamedCount, PriorSource, cut_source, read_shard
from deeped_ray.types import DeepEdError

LINES = {
    "counts": "mention\ttitle\tcount\nBig Apple\tnew_York City\t12\n",
    "deep-ed": "Big Apple\t12\t645042,12,New_York_City\t\n",
    "crosswikis": "Big Apple\t0.93 New_York_City KB W:7/9 Wx:1/2 w:4/5 w':0/1\n",
    "yago": '"Big Apple"\tNew_York_City\n',
}


def read(spec: str, *, shard_bytes: int = 2**20) -> list[NamedCount | None]:
    return [
        found for shard in cut_source(PriorSource.open(spec), shard_bytes=shard_bytes) for found in read_shard(shard)
    ]


@pytest.mark.parametrize("kind", LINES)
def test_every_kind_gives_mention_title_and_count(tmp_path: Path, kind: str) -> None:
    (tmp_path / "priors").write_text(LINES[kind])
    page_id = 645042 if kind == "deep-ed" else -1
    assert read(f"{kind}:{tmp_path / 'priors'}") == [
        NamedCount("Big Apple", "New York City", page_id, 1 if kind == "yago" else 12)
    ]


def test_a_parquet_table_is_read_by_row_group(tmp_path: Path) -> None:
    table = pa.table({"count": [1, 2, 0], "mention": ["a", "b", "c"], "title": ["A", "B", "C"]})
    pq.write_table(table, tmp_path / "priors.parquet", row_group_size=1)
    found = read(f"counts:{tmp_path / 'priors.parquet'}")
    assert found == [NamedCount("a", "A", -1, 1), NamedCount("b", "B", -1, 2), None]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_files_read_the_same(tmp_path: Path, compress: object) -> None:
    assert callable(compress)
    (tmp_path / "plain").write_text(LINES["counts"] * 3)
    (tmp_path / "packed").write_bytes(compress((LINES["counts"] * 3).encode()))
    assert read(f"counts:{tmp_path / 'packed'}") == read(f"counts:{tmp_path / 'plain'}")


@pytest.mark.parametrize("shard_bytes", [1, 7, 30])
def test_every_line_belongs_to_exactly_one_shard(tmp_path: Path, shard_bytes: int) -> None:
    (tmp_path / "priors").write_text("".join(f"m{number}\tT{number}\t{number + 1}\n" for number in range(9)))
    found = read(f"counts:{tmp_path / 'priors'}", shard_bytes=shard_bytes)
    assert [each and each.support for each in found] == list(range(1, 10))


def test_probabilities_of_the_authors_merged_file_become_counts(tmp_path: Path) -> None:
    (tmp_path / "priors").write_text("Big Apple\t200\t645042,0.750,New_York_City\t18978754,0.250,Apple, Inc.\t\n")
    found = read(f"deep-ed:{tmp_path / 'priors'}")
    assert [(each.title, each.support) for each in found if each] == [("New York City", 150), ("Apple, Inc.", 50)]


def test_yago_escapes_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "priors").write_text('"S\\u00e3o Paulo"\tS\\u00e3o_Paulo\n')
    assert read(f"yago:{tmp_path / 'priors'}") == [NamedCount("São Paulo", "São Paulo", -1, 1)]


def test_an_unreadable_line_is_counted_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "priors").write_text("a\tA\t1\nhalf a line\nb\tB\tmany\nc\tC\t3\n")
    assert [each and each.mention for each in read(f"counts:{tmp_path / 'priors'}")] == ["a", None, None, "c"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("counts:nowhere.tsv", r"Cannot read .*nowhere.tsv: No such file"),
        ("wikidata:x", "Expected counts:FILE, deep-ed:FILE, crosswikis:FILE, yago:FILE"),
        ("yago:priors", "priors is no yago file: expected \"mention\" TAB entity, found 'a\\\\tA\\\\t1'"),
    ],
)
def test_what_cannot_be_read_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("priors").write_text("a\tA\t1\n")
    with pytest.raises(DeepEdError, match=message):
        PriorSource.open(spec)


def test_a_parquet_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"surface": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(DeepEdError, match="has columns surface; expected mention, title, count"):
        PriorSource.open(f"counts:{tmp_path / 'x.parquet'}")
