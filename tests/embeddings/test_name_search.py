from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import name_search
from deeped_ray.embeddings.name_search import NameSearch, fold, initials_of, resemblance, write_name_search
from deeped_ray.knowledge.base import KnowledgeBase


def make_search(folder: Path, names: list[str]) -> NameSearch:
    """Every name is an entity of its own."""
    strings = pa.array(names, pa.large_string())
    write_name_search(folder, strings)
    keys, rows = (np.load(folder / f"names.{name}.npy") for name in ("keys", "rows"))
    return NameSearch(keys, rows, strings, np.arange(len(names), dtype=np.int32))


def test_folding_takes_case_diacritics_and_punctuation() -> None:
    assert fold("Beyoncé O'Neill-Größe") == "beyonce oneill grosse"
    assert fold("Łódź, U.S.") == "lodz us"


def test_initials_are_of_capitalised_words() -> None:
    assert initials_of("Office of the High Commissioner") == "ohc"


@pytest.mark.parametrize(
    ("surface", "name", "expected"),
    [
        ("JK Rowling", "J. K. Rowling", 1.0),
        ("SAO PAULO", "São Paulo", 1.0),
        ("Springfield Illinois", "Springfield, Illinois", 1.0),
        ("Apple", "Apple (fruit)", 1.0),
        ("Barrack Obama", "Barack Obama", 1 - 1 / 12),
        ("Manchester Untied", "Manchester United", 1 - 1 / 16),
        ("UNHCR", "United Nations High Commissioner for Refugees", 0.6),
        ("Schumacher", "Michael Schumacher", 0.95 * 10 / 17),
        ("President Barack Obama", "Barack Obama", 0.95 * 11 / 20),
        ("Obama Barack", "Barack Obama", 0.95),
    ],
)
def test_names_resemble(surface: str, name: str, expected: float) -> None:
    assert resemblance(surface, name) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("surface", "name"),
    [
        ("Clark", "Clara"),  # too short for a typing error
        ("Euro 1996", "Euro 1998"),
        ("Peter Smith", "Smith"),
        ("fruit", "Apple (fruit)"),
        ("tuesday", "Ruby Tuesday"),
        ("the", "The Who"),
        ("Schumacher", "Michael Schumacher and the Formula One championship"),
        ("unhcr", "United Nations High Commissioner for Refugees"),
        ("", "Apple"),
        ("?!", "?"),
    ],
)
def test_nonsense_does_not(surface: str, name: str) -> None:
    assert resemblance(surface, name) == 0


WORDS = st.text(alphabet="abé1", min_size=1, max_size=5).map(str.capitalize)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
EDITS = st.tuples(NAMES, st.integers(0, 20), st.sampled_from(["", "a", "b"]), st.integers(0, 2))


def edited(draw: tuple[str, int, str, int]) -> str:
    """A name with a stretch of up to two letters replaced by one or none, or turned around."""
    name, place, letter, length = draw
    stretch = name[place : place + length]
    return name[:place] + (letter or stretch[::-1]) + name[place + length :]


@settings(max_examples=300)
@given(names=st.lists(NAMES, min_size=1, max_size=30, unique=True), surface=st.one_of(NAMES, EDITS.map(edited)))
def test_look_ups_find_what_a_comparison_with_all_names_finds(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], surface: str
) -> None:
    names = [*names, surface[::-1].title(), surface[:3] + surface[4:], surface[:2] + surface[3:1:-1] + surface[4:]]
    search = make_search(tmp_path_factory.mktemp("names"), names)
    expected = {row: alike for row, name in enumerate(names) if (alike := resemblance(surface, name)) > 0}
    assert dict(search.find(surface, count=100)) == pytest.approx(expected)


@pytest.mark.parametrize("surface", ["Barack Obama", "Mozart", "Szegedi"])
def test_every_single_edit_is_found(tmp_path: Path, surface: str) -> None:
    letters = surface.lower()
    deleted = [letters[:i] + letters[i + 1 :] for i in range(len(letters))]
    swapped = [letters[:i] + letters[i : i + 2][::-1] + letters[i + 2 :] for i in range(len(letters) - 1)]
    changed = [letters[:i] + "x" + letters[i + rest :] for i in range(len(letters)) for rest in (0, 1)]
    search = make_search(tmp_path, [surface])
    for typed in [*deleted, *swapped, *changed]:
        if len(name_search.squeeze(typed)) >= name_search.MIN_TYPO_LENGTH:
            assert search.find(typed, count=1), typed


def test_a_word_of_too_many_names_finds_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_search, "MAX_COMPARED", 3)
    search = make_search(tmp_path, ["Smith", *(f"{name} Smith" for name in ("Adam", "Anna", "Jack", "John"))])
    assert search.find("Smith", count=10) == ((0, 1.0),)
    assert search.find("Anna B. Smith", count=1)[0].entity_id == 2


def test_context_decides_between_names_that_resemble_alike(tmp_path: Path) -> None:
    search = make_search(tmp_path, ["Ralf Schumacher", "Joel Schumacher", "Szeged"])
    vectors = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    found = search.similar_names("Schumacher", np.array([0.1, 3], np.float32), vectors, count=2)
    assert [each.entity_id for each in found] == [1, 0]
    assert found[0].similarity == pytest.approx(1, abs=1e-3)
    assert search.similar_names("Nobody", vectors[0], vectors, count=2) == []


def test_names_of_a_knowledge_base_are_memory_mapped(corpus_kb: KnowledgeBase) -> None:
    search = NameSearch.open(corpus_kb)
    found = search.find("Montréal Canadians", count=1)
    assert Catalogue(corpus_kb.open("corpus")).title(found[0].entity_id) == "Montreal Canadiens"
    assert str(corpus_kb.open("index").path / "names.keys.npy") in Path("/proc/self/maps").read_text()
