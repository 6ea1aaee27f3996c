import gzip
from pathlib import Path

import pytest

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.types import DeepEdError, Mention

DOCUMENTS = """-DOCSTART- (1 SPORT)
New\tB\tNew York\tNew_York_City\thttp://en.wikipedia.org/wiki/New_York_City\t645042
York\tI\tNew York\tNew_York_City\thttp://en.wikipedia.org/wiki/New_York_City\t645042
beat
Paris\tB\tParis\tParis_(band)\thttp://en.wikipedia.org/wiki/Paris_(band)\t1
.

Smith\tB\tSmith\t--NME--
left
-DOCSTART- (2 EMPTY)
Nothing
"""


def read(path: Path, content: str = DOCUMENTS) -> list[object]:
    path.write_text(content)
    return list(read_dataset(f"aida:{path}"))


def test_tokens_become_text_and_mentions_keep_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(DOCUMENTS)
    first, second = read_dataset(f"aida:{path}")
    assert (first.name, first.text) == ("1 SPORT", "New York beat Paris .\nSmith left")
    assert first.mentions == (Mention(0, 8, "New York City", 645042, 0), Mention(14, 19, "Paris (band)", 1, 1))
    assert [first.surface(mention) for mention in first.mentions] == ["New York", "Paris"]
    assert (second.name, second.text, second.mentions) == ("2 EMPTY", "Nothing", ())


def test_adjacent_mentions_stay_apart(tmp_path: Path) -> None:
    row = "{0}\tB\t{0}\t{0}\thttp://en.wikipedia.org/wiki/{0}\t1\n"
    path = tmp_path / "a.tsv"
    path.write_text("-DOCSTART- (1)\n" + row.format("Paris") + row.format("Rome"))
    assert [mention.gold for mention in read_dataset(f"aida:{path}")[0].mentions] == ["Paris", "Rome"]


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(DOCUMENTS.encode()))
    assert len(read_dataset(f"aida:{tmp_path / 'a.tsv.gz'}")) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<xml>", r"line 1: expected '-DOCSTART- \(name\)', found '<xml>'"),
        ("", "holds no document"),
        ("-DOCSTART- (1)\nParis\tB\tParis\n", "line 2: a mention needs 5 or more columns"),
        ("-DOCSTART- (1)\nParis\tX\tParis\n", "line 2: expected B or I"),
    ],
)
def test_another_format_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DeepEdError, match=message):
        read(tmp_path / "a.tsv", content)


def test_a_mention_may_go_on_after_a_line_break(tmp_path: Path) -> None:
    rest = "Costa Rica\tCosta_Rica\thttp://en.wikipedia.org/wiki/Costa_Rica\t5"
    path = tmp_path / "a.tsv"
    path.write_text(f"-DOCSTART- (1)\nCosta\tB\t{rest}\n\nRica\tI\t{rest}\nwon\n")
    (document,) = read_dataset(f"aida:{path}")
    assert [document.surface(mention) for mention in document.mentions] == ["Costa\nRica"]


@pytest.mark.data
def test_aida_has_the_counts_that_are_usually_quoted(shared_data: Path) -> None:
    counts = {split: read_dataset(f"aida:{shared_data / 'ed' / 'aida' / split}.tsv.gz") for split in ("train", "testa")}
    assert {
        split: (len(documents), sum(len(d.mentions) for d in documents)) for split, documents in counts.items()
    } == {
        "train": (946, 18541),
        "testa": (216, 4791),
    }
