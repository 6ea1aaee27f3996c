import tarfile
from pathlib import Path

import pytest

from deeped_ray.evaluation.datasets import dataset_path, read_dataset
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document


def annotation(mention: str, title: str, offset: int) -> str:
    parts = {"mention": mention, "wikiName": title, "offset": offset, "length": len(mention)}
    return "<annotation>" + "".join(f"<{tag}>{value}</{tag}>" for tag, value in parts.items()) + "</annotation>"


def write(folder: Path, text: str, *annotations: str, name: str = "d 1") -> str:
    (folder / "RawText").mkdir(parents=True)
    (folder / "RawText" / "d 1").write_text(text, encoding="utf-8")
    document = f'<document docName="{name}">{"".join(annotations)}</document>'
    (folder / f"{folder.name}.xml").write_text(f"<x.entityAnnotation>{document}</x.entityAnnotation>", encoding="utf-8")
    return f"wned:{folder}"


def found(documents: list[Document]) -> list[tuple[int, str, str | None]]:
    return [(m.start, document.surface(m), m.gold) for document in documents for m in document.mentions]


def test_mentions_stand_at_their_offsets_and_nil_is_left_out(tmp_path: Path) -> None:
    gold = [annotation("Bonn", "Bonn", 0), annotation("Smith", "NIL", 9), annotation("left", "", 15)]
    documents = read_dataset(write(tmp_path / "s", "Bonn and Smith left.", *gold))
    assert (documents[0].name, found(documents)) == ("d 1", [(0, "Bonn", "Bonn")])


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 0), (21, 20), (12, 20), (8, 0), (999, 20)])
def test_a_slipped_offset_goes_to_the_nearest_place(tmp_path: Path, offset: int, start: int) -> None:
    text = "Bonn is a city and, Bonn is it."
    assert found(read_dataset(write(tmp_path / "s", text, annotation("Bonn", "Bonn", offset))))[0][0] == start


def test_escapes_of_the_raw_text_are_undone(tmp_path: Path) -> None:
    raw = "A &ndash; B: Rock &amp; Roll, Rock &amp; Roll with R&amp;B"
    gold = [annotation("Rock &amp; Roll", "Rock_&amp;_Roll", raw.rindex("Rock")), annotation("R&amp;amp;B", "RnB", 53)]
    (document,) = read_dataset(write(tmp_path / "s", raw, *gold))
    assert document.text == "A – B: Rock & Roll, Rock & Roll with R&B"
    assert found([document]) == [(20, "Rock & Roll", "Rock & Roll"), (37, "R&B", "RnB")]


def test_case_and_line_breaks_may_differ(tmp_path: Path) -> None:
    gold = [annotation("New York", "New York City", 0), annotation("Usa", "United States", 9)]
    assert [row[1] for row in found(read_dataset(write(tmp_path / "s", "New\nYork, USA", *gold)))] == [
        "New\nYork",
        "USA",
    ]


def test_a_mention_that_is_nowhere_stays_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = write(tmp_path / "s", "Short.", annotation("Atlantis", "Atlantis", 3))
    assert found(read_dataset(spec)) == [(3, "rt.", "Atlantis")]
    assert "'Atlantis' is not in the text" in caplog.text


def test_an_archive_of_the_folder_reads_the_same(tmp_path: Path) -> None:
    spec = write(tmp_path / "s", "Bonn.", annotation("Bonn", "Bonn", 0))
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "s", "s")
    assert read_dataset(f"wned:{tmp_path / 's.tar.gz'}") == read_dataset(spec)
    assert dataset_path(f"wned:{tmp_path / 's.tar.gz'}") == Location(tmp_path / "s.tar.gz")


@pytest.mark.parametrize(
    ("name", "gold", "message"),
    [
        ("other", "", "names a document 'other' that is not in RawText"),
        ("d 1", annotation("Bonn", "Bonn", -1), "found mention 'Bonn' at offset '-1'"),
        ("d 1", "<annotation>", "s.xml is not XML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, gold: str, message: str) -> None:
    with pytest.raises(DeepEdError, match=message):
        read_dataset(write(tmp_path / "s", "Bonn.", gold, name=name))


def test_another_layout_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match=r"holds no \.xml file; expected NAME\.xml beside a folder RawText"):
        read_dataset(f"wned:{tmp_path}")
    (tmp_path / "a.tsv").write_text("-DOCSTART- (1)")
    with pytest.raises(DeepEdError, match=r"a\.tsv is not a tar archive"):
        read_dataset(f"wned:{tmp_path / 'a.tsv'}")


@pytest.mark.data
def test_published_sets_have_the_counts_that_are_usually_quoted(shared_data: Path) -> None:
    specs = ["wned/ace2004", "wned/wikipedia", "wikilinks-dev.tar.gz"]
    sets = [read_dataset(f"wned:{shared_data / 'ed' / spec}") for spec in specs]
    counts = [(len(documents), sum(len(document.mentions) for document in documents)) for documents in sets]
    assert counts == [(36, 257), (320, 6821), (832, 24695)]
