"""Changes to single entities, folded into the parts."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from deeped_ray.cli import main
from deeped_ray.compact import compact
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog
from deeped_ray.linking.following import LiveLookup
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.live import Live
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.opened import open as open_kb
from tests.conftest import MINI_CORPUS, copy_of

pytestmark = pytest.mark.usefixtures("local_ray_session")
FALCON = {"title": "Norrby Falcon", "aliases": [{"name": "Falcon", "count": 5}], "description": "Skates for the ice."}


TORONTO = {"aliases": ["Hogtown"], "description": "Apple, pear and plum grow in the orchard. " * 50, "wikidata": "Q172"}
LIVE: dict[str, npt.NDArray[np.float32]] = {}
"""Vectors as the running service had them."""
ANSWERS: dict[str, list[str]] = {}
"""After each kill."""


POINTS = ("corpus", "embed_entities", "build_index", "made", "adopted")
MEANWHILE = Change("P9", {"title": "Norrby Gull", "aliases": ["Gull"], "description": "A puck of rubber."})


@pytest.fixture(scope="module")
def killed(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """With an entity added, one that was added and taken off, one less, and one with a new description; then compacted.

    That is killed at every point. A change comes after the first kill, and one between the last kill and the end.
    """
    kb = copy_of(mini_kb, tmp_path_factory.mktemp("compact") / "kb")
    log = ChangeLog(kb.location)
    log.append([Change("P7", FALCON), Change("P8", {"title": "Norrby Glider"})])
    log.append([Change("P8", None), Change("Montreal Canadiens", None), Change("Toronto", TORONTO)])
    live = LiveLookup.open(kb)
    LIVE.update({title: live.mix([title]) for title in ("Toronto", "Norrby Falcon")})
    for point in POINTS:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
            patch.setattr("deeped_ray.compact.reached", partial(die, point))
            compact(kb)
        ANSWERS[point] = linked(kb)
        if point == POINTS[0]:
            log.append([MEANWHILE])
    log.append([Change("P10", {"title": "Norrby Heron", "aliases": ["Heron"]})])
    return kb


class KilledError(Exception):
    pass


def die(wanted: str, point: str) -> None:
    if point == f"compact/{wanted}":
        raise KilledError


def linked(kb: KnowledgeBase) -> list[str]:
    """By a server that starts now."""
    found = open_kb(kb.location).link("My Falcon, my Gull and my Heron met Montreal on the ice.", explain=False)
    return [each.candidates[0].title for each in found if each.candidates]


@pytest.fixture(scope="module")
def folded(killed: KnowledgeBase) -> KnowledgeBase:
    assert compact(killed)["changes"] == 1  # the last
    return killed


def test_a_kill_at_any_point_loses_nothing_and_servers_may_start(killed: KnowledgeBase) -> None:
    first, *later = (ANSWERS[point] for point in POINTS)
    assert (first[0], "Norrby Gull" in first) == ("Norrby Falcon", False)
    assert all(each[:2] == ["Norrby Falcon", "Norrby Gull"] for each in later)
    assert all("Montreal Canadiens" not in each for each in ANSWERS.values())
    assert linked(killed)[2] == "Norrby Heron"


def test_the_parts_hold_the_changes(folded: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    catalogue = Catalogue(folded.open("corpus"))
    assert len(catalogue) == len(Catalogue(mini_kb.open("corpus"))) + 2  # three more, one less
    assert catalogue.find("P7") == catalogue.require("Norrby Falcon")
    assert catalogue.find("Norrby Glider") is None
    assert catalogue.find("Montreal Canadiens") is None
    assert ChangeLog(folded.location).read_new() == []


def test_numbers_go_on_after_those_of_changes_that_were_folded(folded: KnowledgeBase, tmp_path: Path) -> None:
    """Or servers that run would take a new change for an earlier one."""
    kb = copy_of(folded, tmp_path / "kb")
    assert len([*(kb.root / "changes").iterdir()]) == 1
    assert ChangeLog(kb.location).append([Change("P7", None)])[0].number == 5


def test_the_linker_is_the_same_and_links_them(folded: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    assert folded.open("linker").id == mini_kb.open("linker").id
    (prediction,) = Linker.open(folded).link("The blades of my Falcon are dull on the ice.", [(17, 23)])
    assert prediction.candidates[0].title == "Norrby Falcon"


def test_a_new_description_has_counted_before_and_counts_now(folded: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    now, before = Lookup(folded), Lookup(mini_kb).mix(["Toronto"])
    for title, vector in LIVE.items():
        assert vector @ now.mix([title]) > 0.97
    assert before @ now.mix(["Toronto"]) < 0.9
    assert now.mention("Hogtown").candidates[0].wikidata == "Q172"


def test_nothing_is_left_to_fold_and_a_build_keeps_it(folded: KnowledgeBase) -> None:
    before = folded.manifest()["parts"]
    assert compact(folded)["changes"] == 0
    build_corpus(folded, MINI_CORPUS)
    assert folded.manifest()["parts"] == before


def test_a_change_that_the_parts_hold_does_not_count_twice(folded: KnowledgeBase, tmp_path: Path) -> None:
    """As if the files of changes had not been removed before a kill."""
    kb = copy_of(folded, tmp_path / "kb")
    files = json.loads((kb.open("corpus").path / "folded.json").read_text())["files"]
    for file in files:
        rows = [{"id": "P7", "entity": FALCON}]
        (kb.root / "changes" / file).write_text(json.dumps({"time": "", "changes": rows}))
    live = Live(kb, Linker.open(kb), Lookup(kb))
    assert not live.poll()
    assert live.changes.version == "0"


def test_entities_are_added_listed_and_taken_off_by_command(
    mini_kb: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kb = copy_of(mini_kb, tmp_path / "kb")
    (tmp_path / "own.jsonl").write_text(json.dumps({"id": "P7", **FALCON}))
    assert main(["entities", "--kb", str(kb.root), "add", str(tmp_path / "own.jsonl")]) == 0
    assert main(["link", "--kb", str(kb.root), "The blades of my Falcon are dull."]) == 0
    assert "[Falcon => Norrby Falcon]" in capsys.readouterr().out
    assert main(["entities", "--kb", str(kb.root), "remove", "Norrby Falcon", "Montreal"]) == 0
    capsys.readouterr()
    assert main(["entities", "--kb", str(kb.root), "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["changed"]
    assert [(each["number"], each["id"], each["title"]) for each in listed] == [(2, "P7", None), (2, "Montreal", None)]
    assert main(["entities", "--kb", str(kb.root), "remove", "Nobody"]) == 2
    assert "No entity 'Nobody'" in capsys.readouterr().err
