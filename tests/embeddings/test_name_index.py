from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.corpus import priors
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings import name_filing, name_forms, name_lists
from deeped_ray.embeddings.name_filing import write_name_index
from deeped_ray.embeddings.name_forms import (
    acronym_of,
    endings_of,
    fold,
    form_of,
    initials_of,
    is_typo,
    lower_initials_of,
)
from deeped_ray.embeddings.name_index import EQUALS, KINDS, TYPO, NameIndex
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.storage.location import Location
from deeped_ray.text import bare_title
from deeped_ray.types import Page
from tests.conftest import make_catalogue


def make_index(
    folder: Path, names: dict[str, list[str]], links: dict[str, int] | None = None, person: str | None = None
) -> tuple[NameIndex, Catalogue]:
    """Title -> further names of an entity; titles that are linked most come first in heads."""
    pages = [Page(i, title, "") for i, title in enumerate(names)]
    catalogue = make_catalogue(folder, pages)
    if links:
        catalogue.num_links = np.array([links.get(catalogue.title(i), 0) for i in range(len(catalogue))])
    if person:
        catalogue.is_person = np.arange(len(catalogue)) == catalogue.require(person)
    counts = {(name, catalogue.require(title)): 1.0 for title, more in names.items() for name in [title, *more]}
    priors.reduce(priors.rows(counts), folder / "piece")
    priors.join([folder / "piece"], folder)
    corpus = Part("corpus", "0", Location(folder), {})
    write_name_index(folder, MentionTable(corpus), catalogue)
    return NameIndex(Part("index", "0", Location(folder), {}), corpus), catalogue


def found(index: NameIndex, catalogue: Catalogue, surface: str) -> dict[tuple[str, str], float]:
    """(title, kind) -> strength."""
    matches = index.find(surface)
    rows = zip(matches.entities.tolist(), matches.kinds.tolist(), matches.strengths.tolist(), strict=True)
    return {(catalogue.title(entity), KINDS[kind]): strength for entity, kind, strength in rows}


def test_folding_takes_case_diacritics_and_punctuation() -> None:
    assert fold("Beyoncé O'Neill-Größe") == "beyonce oneill grosse"
    assert fold("Łódź, U.S.") == "lodz us"


def test_initials_are_of_capitalised_words() -> None:
    assert initials_of("Office of the High Commissioner") == "ohc"
    assert (acronym_of("A.F.P."), acronym_of("Afp"), acronym_of("A")) == ("afp", "", "")


@pytest.mark.parametrize(
    ("title", "initials"),
    [
        ("Air traffic control", "atc"),
        ("Weapon of mass destruction", "wmd"),
        ("Ludwig van Beethoven", ""),
        ("flying saucer", ""),
        ("!", ""),
    ],
)
def test_a_title_in_lower_case_has_the_initials_of_all_words_but_stop_words(title: str, initials: str) -> None:
    assert lower_initials_of(title) == initials


ENTITIES = {
    "J. K. Rowling": [],
    "Alexander Lebed": ["General Lebed"],
    "Agence France-Presse": [],
    "Air traffic control": [],
    "US Open (tennis)": [],
    "Kurds": ["Kurdish"],
    "Barack Obama": [],
    "NPR": [],
    "1974 Monaco Grand Prix": [],
    "The Who": [],
    "Chicago White Sox": [],
}


@pytest.mark.parametrize(
    ("surface", "title", "kind", "strength"),
    [
        ("JK ROWLING", "J. K. Rowling", "equals", 1.0),
        ("U.S. Open", "US Open (tennis)", "equals", 1.0),
        ("The Who", "The Who", "equals", 1.0),  # of stop words alone
        ("Lebed", "Alexander Lebed", "words", 5 / 12),  # `General Lebed` fits better than the title
        ("CHICAGO", "Chicago White Sox", "words", 7 / 15),
        ("Sox Chicago", "Chicago White Sox", "words", 10 / 15),
        ("Monaco 1974", "1974 Monaco Grand Prix", "words", 10 / 19),
        ("A.F.P.", "Agence France-Presse", "initials", 1.0),
        ("ATC", "Air traffic control", "initials", 0.25),
        ("Barrack Obama", "Barack Obama", "typo", 1 - 1 / 12),
        ("Barcak Obama", "Barack Obama", "typo", 1 - 1 / 11),
        ("NPR news", "NPR", "part", 3 / 7),
    ],
)
def test_names_are_found(tmp_path: Path, surface: str, title: str, kind: str, strength: float) -> None:
    index, catalogue = make_index(tmp_path, ENTITIES)
    assert found(index, catalogue, surface)[title, kind] == pytest.approx(strength, abs=0.01)


def test_persons_are_not_found_by_their_initials(tmp_path: Path) -> None:
    names: dict[str, list[str]] = {"Alice Freeman Palmer": [], "Agence France-Presse": []}
    index, catalogue = make_index(tmp_path, names, person="Alice Freeman Palmer")
    assert [*found(index, catalogue, "AFP")] == [("Agence France-Presse", "initials")]


@pytest.mark.parametrize("surface", ["", "?!", "x" * 256, "Zorblatt", "of the", "\u0300"])
def test_nonsense_finds_nothing(tmp_path: Path, surface: str) -> None:
    index, _ = make_index(tmp_path, ENTITIES)
    assert not len(index.find(surface).entities)


def test_endings_are_learned_from_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_filing, "MIN_EXCHANGES", 2)
    names = {"Bosnia": ["Bosnian"], "Albania": ["Albanian"], "Georgia": []}
    index, catalogue = make_index(tmp_path, names)
    assert found(index, catalogue, "Georgian")["Georgia", "inflection"] == 1
    assert (endings_of("kurdish", "kurds"), endings_of("cat", "cup")) == (("ish", "s"), None)


@pytest.mark.parametrize(("a", "b"), [("Clark", "Clara"), ("Euro 1996", "Euro 1998"), ("Barack", "Barack")])
def test_short_names_digits_and_equals_are_no_typing_errors(a: str, b: str) -> None:
    assert not is_typo(*(form_of(name).squeezed for name in (a, b)))


@pytest.mark.parametrize("surface", ["Barack Obama", "Mozart", "Szegedi"])
def test_every_single_edit_is_found(tmp_path: Path, surface: str) -> None:
    letters = surface.lower()
    deleted = [letters[:i] + letters[i + 1 :] for i in range(len(letters))]
    swapped = [letters[:i] + letters[i : i + 2][::-1] + letters[i + 2 :] for i in range(len(letters) - 1)]
    changed = [letters[:i] + "x" + letters[i + rest :] for i in range(len(letters)) for rest in (0, 1)]
    index, _ = make_index(tmp_path, {surface: []})
    for typed in [*deleted, *swapped, *changed]:
        if len(form_of(typed).squeezed) >= name_forms.MIN_TYPO_LENGTH:
            assert {EQUALS, TYPO} & {*index.find(typed).kinds.tolist()}, typed


WORD = st.text(alphabet="abé1", min_size=2, max_size=4).map(str.capitalize)
NAME = st.lists(WORD, min_size=1, max_size=4).map(" ".join)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(names=st.lists(NAME, min_size=1, max_size=30, unique_by=lambda name: name.lower()), surface=NAME)
def test_words_are_found_as_by_a_comparison_with_all_names(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], surface: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_lists, "HEAD", 1000)
        index, catalogue = make_index(tmp_path_factory.mktemp("names"), {name: [] for name in names})
        ours = form_of(surface)
        expected = {
            (name, "words"): ours.num_letters / max(form_of(name).num_letters, ours.num_letters)
            for name in names
            if ours.words and {*ours.words} <= {*form_of(bare_title(name)).words}
        }
        by_words = {key: value for key, value in found(index, catalogue, surface).items() if key[1] == "words"}
    assert by_words == pytest.approx(expected, abs=0.02)


SMITHS: dict[str, list[str]] = {
    f"{first} Smith {last}": [] for first in ("Adam", "Anna", "Jack", "John") for last in ("Senior", "Junior")
}


def test_of_a_frequent_word_the_most_linked_entities_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lists, "HEAD", 3)
    links = {"Jack Smith Junior": 9, "Anna Smith Senior": 8, "John Smith Senior": 7, "Adam Smith Senior": 6}
    index, catalogue = make_index(tmp_path, SMITHS, links)
    titles = {title for title, kind in found(index, catalogue, "Smith") if kind == "words"}
    assert titles == {"Jack Smith Junior", "Anna Smith Senior", "John Smith Senior"}


def test_two_frequent_words_are_found_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lists, "HEAD", 3)
    rare = {"Zoe Junior Smith": [], **SMITHS}
    index, catalogue = make_index(tmp_path, rare, {title: 9 for title in SMITHS if "Junior" not in title})
    # each of the words has more than three entities, and so have both together: the first three are read
    assert len([kind for _, kind in found(index, catalogue, "Smith Junior") if kind == "words"]) == 3
    assert ("Zoe Junior Smith", "words") in found(index, catalogue, "Zoe Smith")


def test_the_number_of_buckets_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lists, "HEAD", 3)
    files = []
    for rows in (2**21, 8):
        monkeypatch.setattr(name_lists, "ROWS_A_BUCKET", rows)
        folder = tmp_path / str(rows)
        folder.mkdir()
        make_index(folder, SMITHS, {title: len(title) for title in SMITHS})
        files.append({file.name: file.read_bytes() for file in folder.glob("names.*")})
    assert name_lists.num_buckets(len(SMITHS)) > 2
    assert len(files[0]) == 7
    assert files[0] == files[1]


def test_words_of_a_surface_have_the_entities_with_such_names(tmp_path: Path) -> None:
    index, catalogue = make_index(tmp_path, ENTITIES)
    ((start, end, letters), (_, _, others)), total = index.words_of("Chicago Palace")
    assert "Chicago White Sox" in [catalogue.title(entity) for entity in index.entities[start:end].tolist()]
    assert (letters, others, total) == (7, 6, 13)


def test_names_of_a_knowledge_base_are_memory_mapped(corpus_kb: KnowledgeBase) -> None:
    index, catalogue = NameIndex.open(corpus_kb), Catalogue(corpus_kb.open("corpus"))
    assert ("Montreal Canadiens", "typo") in found(index, catalogue, "Montréal Canadians")
    assert str(corpus_kb.open("index").path / "names.keys.npy") in Path("/proc/self/maps").read_text()
