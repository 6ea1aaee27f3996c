"""Entities from files: what is read, what is shortened, and what is refused with its line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from deeped_ray.corpus import entity_files
from deeped_ray.corpus.entity_files import FIRST_PAGE_ID, Example, OwnEntity, entity_of, read_entities
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Link


def read(folder: Path, *rows: Any, name: str = "own.jsonl") -> list[OwnEntity]:
    path = folder / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return list(read_entities(Location(path)))


def entity(**values: Any) -> OwnEntity:
    return entity_of(values, where="here")


def test_json_lines_and_csv_give_the_same_entities(tmp_path: Path) -> None:
    row = {"id": "P7", "title": "Falcon 7", "aliases": ["Falcon", "F7"], "description": "Grinds, loudly."}
    in_json = read(tmp_path, row)
    in_csv = read(tmp_path, "id,title,aliases,description,price", 'P7,Falcon 7,Falcon|F7,"Grinds, loudly.",9')
    assert in_json == in_csv
    assert in_json[0].aliases == (("P7", 0.5), ("F7", 0.5), ("Falcon", 0.5))


def test_semicolons_tabs_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    semicolons = read(tmp_path, "\ufefftitle;description", "Falcon;A grinder, loud")
    tabs = read(tmp_path, "title\tdescription", "Falcon\tA grinder, loud")
    assert semicolons == tabs == [OwnEntity(title="Falcon", description="A grinder, loud")]


def test_a_cell_of_several_lines_is_one_entity(tmp_path: Path) -> None:
    assert [each.title for each in read(tmp_path, "title,description", 'A,"one\ntwo"', "B,three")] == ["A", "B"]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"title": "Falcon"}\n'))
    assert [each.title for each in read_entities(Location(path))] == ["Falcon"]


def test_an_id_alone_is_the_title() -> None:
    assert entity(id="P7") == OwnEntity(title="P7")
    assert entity(id=17).title == "17"


def test_a_title_is_also_known_as_it_is_written() -> None:
    assert entity(title="iGrind") == OwnEntity(title="IGrind", aliases=(("iGrind", 0.5),))


def test_counts_of_aliases_are_kept_and_the_highest_wins() -> None:
    aliases = [{"name": "F7", "count": 3}, "F7", {"name": "Falcon"}]
    assert entity(title="Falcon 7", aliases=aliases).aliases == (("F7", 3.0), ("Falcon", 0.5))


def test_a_plain_example_is_placed_at_its_longest_whole_name() -> None:
    found = entity(title="Falcon 7", aliases=["Falcon"], examples=["Falconry? My Falcon 7 jams."])
    assert found.examples == (Example("Falconry? My Falcon 7 jams.", 13, 21),)


def test_pages_have_the_description_and_examples_link_to_it() -> None:
    own, redirect, example = entity(
        id="P7", title="Falcon", description="A grinder.", type="Person", examples=["My Falcon jams."]
    ).pages()
    assert (own.title, own.text, own.is_person, own.page_id >= FIRST_PAGE_ID) == ("Falcon", "A grinder.", True, True)
    assert (redirect.title, redirect.redirect) == ("P7", "Falcon")
    assert (example.page_id, example.links) == (-1, (Link(3, 9, "Falcon"),))


def test_long_examples_are_cut_around_the_name() -> None:
    text = "x " * 20_000 + "Falcon" + " y" * 20_000
    (example,) = entity(title="Falcon", examples=[{"text": text, "start": 40_000, "end": 40_006}]).examples
    assert len(example.text) == entity_files.MAX_EXAMPLE
    assert example.text[example.start : example.end] == "Falcon"


def test_of_many_aliases_a_thousand_are_kept() -> None:
    found = entity(title="Falcon", aliases=[f"F{number}" for number in range(5000)])
    assert (len(found.aliases), found.is_shortened) == (entity_files.MAX_ALIASES, True)


def test_ten_million_aliases_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    aliases = '["x"' + ',"x"' * 10**7 + "]"
    with pytest.raises(DeepEdError, match="line 2 is longer than 32 MiB"):
        read(tmp_path, {"title": "A"}, f'{{"title": "B", "aliases": {aliases}}}')


def test_a_description_of_ten_megabytes_is_shortened() -> None:
    found = entity(title="Falcon", description="grinds " * 1_500_000)
    assert (len(found.description), found.is_shortened) == (entity_files.MAX_DESCRIPTION, True)


def test_halves_of_characters_are_replaced() -> None:
    assert entity(title="A\ud800B").title == "A?B"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"description": "nameless"}, "no title"),
        ({"title": "  "}, "no title"),
        ({"title": 7}, "title is '7', expected text"),
        ({"title": "x" * 1001}, "the title has 1,001 characters"),
        ({"title": "B", "aliases": "F7"}, "aliases is 'F7', expected a list"),
        ({"title": "B", "aliases": [7]}, "alias '7', expected a name"),
        ({"title": "B", "aliases": [{"name": "F7", "count": -1}]}, "with a count above 0"),
        ({"title": "B", "aliases": [{"name": "F7", "count": float("nan")}]}, "with a count above 0"),
        ({"title": "B", "url": "javascript:alert(1)"}, "expected http://, https:// or urn:"),
        ({"title": "B", "wikidata": "64"}, "expected Q and a number"),
        ({"title": "B", "examples": ["nothing here"]}, "has none of the entity's names"),
        ({"title": "B", "examples": [{"text": "B", "start": 0, "end": 9}]}, "within it"),
        (["B"], "found"),
        ("{broken", "found '{broken'"),
        ({"title": "A"}, "'A' is on line 1 already"),
    ],
)
def test_bad_lines_are_refused_in_one_line_with_file_and_number(tmp_path: Path, row: Any, problem: str) -> None:
    with pytest.raises(DeepEdError) as refused:
        read(tmp_path, {"title": "A"}, row)
    message = str(refused.value)
    assert "own.jsonl, line 2" in message
    assert problem in message
    assert "\n" not in message


def test_two_ids_with_one_title_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="line 3: 'John Smith' is on line 2 already"):
        read(tmp_path, "id,title", "1,John Smith", "2,John Smith")


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(b"title\nFalcon\nCaf\xe9\n")
    with pytest.raises(DeepEdError, match="line 3 is not UTF-8"):
        list(read_entities(Location(path)))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="neither JSON lines nor CSV"):
        read(tmp_path, "<mediawiki>")


@pytest.mark.parametrize(
    ("content", "told"), [("", "is empty"), (" \n", "is empty"), ('[\n{"title": "A"}]', "is one JSON list")]
)
def test_a_file_without_lines_of_entities_is_told_from_one(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(DeepEdError, match=told):
        read(tmp_path, content)
