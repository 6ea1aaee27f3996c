import bz2
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.corpus.catalogue import ExtendedCatalogue
from deeped_ray.corpus.persons import is_person, opens_with_life, read_persons
from deeped_ray.corpus.titles import Names
from deeped_ray.corpus.wikidump import RawPage
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Page
from tests.conftest import make_catalogue


@pytest.mark.parametrize(
    "category",
    [
        *("Category:Living people", "category:living_people", "Category:Possibly living people"),
        *("Category:1950 births", "Category: 1999 deaths|Smith, Ann", "Category:50 BC births", "Category:1950s births"),
        *("Category:1st-century BC deaths", "Category:Year of birth missing (living people)"),
    ],
)
def test_persons_are_told_by_categories(category: str) -> None:
    assert is_person("X", f"X is X.\n\n[[Category:Poets]]\n[[{category}]]\n[[de:X]]", "X is X.")


@pytest.mark.parametrize(
    "markup",
    [
        *(
            "[[Category:2001 animal births]]",
            "[[Category:Deaths from cancer]]",
            "[[Category:Living people by country]]",
        ),
        *("[[Category:Lists of living people]]", "[[:Category:Living people]]", "[[Living people]]", "1950 births"),
    ],
)
def test_other_categories_make_no_person(markup: str) -> None:
    assert not is_person("X", f"X is X.\n\n[[Category:Poets]]\n{markup}", "X is X.")


@pytest.mark.parametrize(
    ("language", "markup"),
    [
        *(
            ("de", "[[Kategorie:Geboren 1950]]"),
            ("de", "{{Personendaten\n|NAME=X}}"),
            ("fr", "[[Catégorie:Naissance en mai 1950]]"),
        ),
        *(
            ("es", "[[Categoría:Nacidos en 1950]]"),
            ("it", "{{Bio\n|Nome = X}}"),
            ("pl", "[[Kategoria:Urodzeni w 1950]]"),
        ),
        *(
            ("ru", "[[Категория:Родившиеся в 1950 году]]"),
            ("sv", "[[Kategori:Födda 1950|X]]"),
            ("tr", "[[Kategori:1950 doğumlular]]"),
        ),
        *(
            ("hu", "[[Kategória:1950-ben született személyek]]"),
            ("fi", "[[Luokka:Vuonna 1950 syntyneet]]"),
            ("ja", "[[Category:1950年生]]"),
        ),
        *(
            ("ko", "[[분류:1950년 출생]]"),
            ("ar", "[[تصنيف:مواليد 1950]]"),
            ("fa", "[[رده:زادگان ۱۹۵۰ (میلادی)]]"),
            ("he", "[[קטגוריה:ילידי 1950]]"),
        ),
        *(("zh", "[[Category:在世人物]]"), ("vi", "[[Thể loại:Sinh năm 1950]]"), ("pt", "{{Info/Biografia\n|nome=X}}")),
    ],
)
def test_persons_are_told_in_the_larger_languages(language: str, markup: str) -> None:
    assert is_person("X", f"{markup}\nX is X.", "X is X.", language)
    assert not is_person("X", f"{markup.replace(':', ':List of ').replace('{{', '{{List of ')}\nX", "X is X.", language)


@pytest.mark.parametrize(
    "infobox",
    [
        *(
            "Infobox person\n",
            "infobox_officeholder|",
            "Infobox football biography <!-- see -->",
            "Infobox_Philosopher }}",
        ),
        *("Infobox military  person|", "Infobox Royalty\n", "Infobox chess player|", "Infobox person/Wikidata|"),
    ],
)
def test_persons_are_told_by_infoboxes(infobox: str) -> None:
    assert is_person("X", f"{{{{short description|Y}}}}\n{{{{{infobox}| name = X}}}} X is X.", "X is X.")


@pytest.mark.parametrize(
    "infobox", ["Infobox musical artist", "Infobox settlement", "Infobox royal house", "Infobox personality test"]
)
def test_infoboxes_that_others_have_too_make_no_person(infobox: str) -> None:
    assert not is_person("X", f"{{{{{infobox}\n| name = X}}}} X is X.", "X is X.")


def test_only_the_first_infobox_counts() -> None:
    assert not is_person("X", "{{Infobox event|y}} X is X. {{Infobox person|name=Y}}", "X is X.")


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Ann Smith", "Ann Smith (born 1 May 1950) is a poet."),
        ("Ann Smith (poet)", "Dame Ann J. Smith, DBE (; born Ann Lee, 1950) is a poet."),
        ("Ann Smith", "Ann Smith (b. 1950) writes."),
        ("Ann Smith", "Ann Smith (born ) is a poet."),
        ("Molly", "Ann Smith (born May 1, 1950), known as Molly, is a poet."),
        ("Ann Smith", "Ann Smith (1 May 1900 – 2 June 1980) was a poet."),
        ("Ann Smith", "\n\nAnn Smith (Paris, May 1, 1900—Rome, June 2, 1980) was a poet."),
        ("Ann Smith", "Ann Smith (c. 1500 – 1550) was a poet."),
        ("Ann Smith", "Ann Smith (1867 – 17 July 1946) was a poet."),
        ("Augustus", "Augustus (23 September 63 BC – 19 August AD 14) was an emperor."),
    ],
)
def test_persons_are_told_by_how_their_text_begins(title: str, text: str) -> None:
    assert opens_with_life(title, text)


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("World War I", "World War I (1914–1918) was a war."),
        ("World War II", "World War II (1 September 1939 – 2 September 1945) was a war."),
        ("Battle of Britain", "The Battle of Britain (10 July – 31 October 1940) was an air campaign."),
        ("Apollo 11", "Apollo 11 (July 16–24, 1969) was a spaceflight."),
        ("Tang dynasty", "The Tang dynasty (618–907) was a dynasty."),
        ("Shang dynasty", "The Shang dynasty (c. 1600 BC – c. 1046 BC) was a dynasty."),
        ("The Band", "The Band (formed 1967) were a band."),
        ("Birth", "Birth (to be born) is the beginning of life."),
        ("Poems", "Poems is a book by Ann Smith (born 1950)."),
        ("Poems", "Ann Smith (born 1950) wrote many."),
        ("Poems", "Poems were written then.\nPoems (born 1950)"),
        ("Smith Prize", "Its history began with a writer. Ann Smith (born 1950) gave money for it."),
        ("42", "42 (born 1950) is a number."),
    ],
)
def test_years_in_brackets_alone_make_no_person(title: str, text: str) -> None:
    assert not opens_with_life(title, text)


def test_redirects_and_disambiguation_pages_are_no_persons() -> None:
    person = "[[Category:Living people]]"
    assert parse_page(RawPage(1, "Ann", f"Ann is a poet. {person}", None)).is_person
    assert not parse_page(RawPage(1, "Ann", f"#REDIRECT [[Ann Smith]] {person}", None)).is_person
    assert not parse_page(RawPage(1, "Ann", f"Ann may be {{{{hndis}}}} {person}", None)).is_person


@pytest.mark.parametrize(
    "hostile",
    [
        "(" * 10**6,
        "[[ category:" * 10**5,
        "[[Category:1" + "9" * 10**6,
        "{{Infobox " * 10**5,
        "(born " * 10**5,
        "(1 May " * 10**5,
    ],
)
def test_the_time_is_linear_whatever_a_page_holds(hostile: str) -> None:
    start = time.process_time()
    is_person("Born May", hostile, hostile)
    assert time.process_time() - start < 0.5


PAGES = [
    Page(1, "Ann Smith", "", is_person=True),
    Page(2, "Berlin", ""),
    Page(3, "Bob Jones", ""),
    Page(4, "Bobby", "", redirect="Bob Jones"),
    Page(5, "Ann Smith", "", redirect="Berlin"),
    Page(6, "Annie", "", redirect="Ann Smith"),
]


def names_of(folder: Path) -> Names:
    make_catalogue(folder, PAGES)
    return Names(Part("corpus", "0", Location(folder), {}))


def test_the_catalogue_knows_persons_by_their_pages(tmp_path: Path) -> None:
    catalogue = make_catalogue(tmp_path, PAGES)
    assert catalogue.is_person.dtype == np.bool_
    assert catalogue.is_person.tolist() == [True, False, False]


def test_entities_that_only_candidate_lists_name_are_no_persons(tmp_path: Path) -> None:
    make_catalogue(tmp_path, PAGES)
    part = Part("corpus", "0", Location(tmp_path), {})
    assert ExtendedCatalogue(part, [("Carl", 9), ("Berlin", 2)]).is_person.tolist() == [True, False, False, False]


@pytest.mark.parametrize("compress", [bytes, bz2.compress])
def test_titles_of_persons_are_normalised_and_their_redirects_followed(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "persons.txt").write_bytes(compress(b"bobby\n\nann_Smith\r\nNobody\n"))
    assert read_persons(Location(tmp_path / "persons.txt"), names_of(tmp_path)) == [0, 2]


def test_a_file_without_known_titles_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "persons.txt").write_text("Nobody\n")
    with pytest.raises(DeepEdError, match=r"persons\.txt names no entity of the dump"):
        read_persons(Location(tmp_path / "persons.txt"), names_of(tmp_path))
