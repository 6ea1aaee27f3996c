"""Changes to single entities, folded into the parts."""

import json
from pathlib import Path

import pytest

from deeped_ray.cli import main
from deeped_ray.compact import compact
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.live import Live
from deeped_ray.linking.lookup import Lookup
from tests.conftest import MINI_CORPUS, copy_of

pytestmark = pytest.mark.usefixtures("local_ray_session")
FALCON = {"title": "Norrby Falcon", "aliases": [{"name": "Falcon", "count": 5}], "description": "Skates for the ice."}


@pytest.fixture(scope="module")
def folded(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """With one entity added, one that was added and taken off, and one less; then compacted."""
    kb = copy_of(mini_kb, tmp_path_factory.mktemp("compact") / "kb")
    log = ChangeLog(kb.location)
    log.append([Change("P7", FALCON), Change("P8", {"title": "Norrby Glider"})])
    log.append([Change("P8", None), Change("Montreal Canadiens", None)])
    done = compact(kb)
    assert (done["changes"], done["entities"]) == (2, 3)
    return kb


def test_the_parts_hold_the_changes(folded: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    catalogue = Catalogue(folded.open("corpus"))
    assert len(catalogue) == len(Catalogue(mini_kb.open("corpus")))  # one more, one less
    assert catalogue.find("P7") == catalogue.require("Norrby Falcon")
    assert catalogue.find("Norrby Glider") is None
    assert catalogue.find("Montreal Canadiens") is None
    assert list((folded.root / "changes").iterdir()) == []


def test_the_linker_is_the_same_and_links_them(folded: KnowledgeBase, mini_kb: KnowledgeBase) -> None:
    assert folded.open("linker").id == mini_kb.open("linker").id
    (prediction,) = Linker.open(folded).link("The blades of my Falcon are dull on the ice.", [(17, 23)])
    assert prediction.candidates[0].title == "Norrby Falcon"


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
