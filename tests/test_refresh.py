"""A fresh dump becomes the next version, if it links as well; the current one is there until then, and after."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeped_ray import cli, refresh, stages
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog
from deeped_ray.knowledge.versions import number_of, version, versions
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.opened import open as open_kb
from deeped_ray.mini import MINI_DUMP
from deeped_ray.refresh import RefreshConfig
from deeped_ray.running.config import merge, parse_sets
from deeped_ray.types import DeepEdError
from tests.conftest import MINI_SETTINGS, copy_of
from tests.corpus.test_update import changed_dump

pytestmark = pytest.mark.usefixtures("local_ray_session")
PARTS = ("pages", "corpus", "words", "vectors", "index", "linker")


def run(kb: KnowledgeBase, dump: Path, **settings: Any) -> dict[str, Any]:
    """As the job does, with the settings that made the fixtures."""
    values = merge(parse_sets(MINI_SETTINGS), {"corpus": {"dump": [str(dump)]}})
    _, sections = stages.resolve(merge(values, {"vectors": {"shard_words": 10_000}}))
    return refresh.refresh(kb, RefreshConfig(dump=(str(dump),), **{"dataset": ("mini:test",), **settings}), sections)


@pytest.fixture(scope="module")
def refreshed(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """The mini encyclopedia, and a version of it from a dump with 3% of its pages changed."""
    folder = tmp_path_factory.mktemp("refreshed")
    kb = copy_of(mini_kb, folder / "kb")
    result = run(kb, changed_dump(folder / "fresh.xml", share=0.03), margin=0.05)
    assert (result["changed"], result["version"], result["previous"]) == (True, 2, 1)
    return kb


def vectors_by_title(kb: KnowledgeBase) -> dict[str, bytes]:
    catalogue, vectors = Catalogue(kb.open("corpus")), kb.open("vectors").array("vectors")
    titles = catalogue.titles(np.arange(len(catalogue)))
    return {title: vectors[row].tobytes() for row, title in enumerate(titles)}


def test_the_next_version_knows_what_is_new_and_the_earlier_one_does_not(refreshed: KnowledgeBase) -> None:
    text = "They met in the Zanzibar Club near Toronto."
    answers = [Linker.open(version(refreshed, number)).link(text, [(16, 29)])[0] for number in (1, 2)]
    assert [each.candidates[0].title if each.candidates else None for each in answers][1] == "Zanzibar Club"
    assert all(candidate.title != "Zanzibar Club" for candidate in answers[0].candidates)


def test_vectors_of_entities_whose_evidence_is_the_same_are_the_same_to_the_byte(refreshed: KnowledgeBase) -> None:
    before, after = (vectors_by_title(version(refreshed, number)) for number in (1, 2))
    shared = before.keys() & after.keys()
    same = [title for title in shared if before[title] == after[title]]
    assert len(same) > 0.5 * len(shared)
    counts = refreshed.open("vectors").config
    assert counts["added_to"] == version(refreshed, 1).open("vectors").id


def test_words_and_linker_are_kept_and_say_what_they_were_made_from(
    refreshed: KnowledgeBase, mini_kb: KnowledgeBase
) -> None:
    for part in ("words", "linker"):
        kept = refreshed.open(part)
        assert kept.id == mini_kb.open(part).id
        assert kept.record["made_from"] == mini_kb.open(part).record["parents"]


def test_both_versions_were_scored_on_the_same_documents(refreshed: KnowledgeBase) -> None:
    latest, first = versions(refreshed)
    assert (latest.state, first.state) == ("current", "earlier")
    assert latest.check["mentions"] > 50
    assert 0.5 < latest.check["accuracy_before"] <= 1
    assert 0.5 < latest.check["accuracy"] <= 1


def test_versions_and_rollback_from_the_command_line(
    refreshed: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kb = copy_of(refreshed, tmp_path / "kb")
    assert cli.main(["versions", str(kb)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "fresh.xml" in next(line for line in lines if "current" in line)
    assert "miniwiki" in next(line for line in lines if "earlier" in line)
    assert cli.main(["rollback", "--kb", str(kb)]) == 0
    assert "is at version 1 again; it was at 2" in capsys.readouterr().out
    assert number_of(kb) == 1
    assert cli.main(["rollback", "--kb", str(kb)]) == 2
    assert "has no earlier version than 1" in capsys.readouterr().err
    assert cli.main(["rollback", "--kb", str(kb), "--to", "2"]) == 0
    assert number_of(kb) == 2


def test_a_version_that_is_damaged_is_not_gone_back_to(
    refreshed: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kb = copy_of(refreshed, tmp_path / "kb")
    (version(kb, 1).open("vectors").path / "vectors.npy").write_bytes(b"")
    assert cli.main(["rollback", "--kb", str(kb)]) == 2
    assert "vectors part" in capsys.readouterr().err
    assert number_of(kb) == 2


def test_an_unchanged_dump_makes_no_version(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(mini_kb, tmp_path / "kb")
    before = kb.manifest()
    dump = shutil.copy(MINI_DUMP, tmp_path / "next.xml")
    assert run(kb, Path(dump)) == {"version": 1, "changed": False}
    assert kb.manifest() == before
    assert [each.number for each in versions(kb)] == [1]


def test_a_version_that_links_worse_is_refused_and_can_be_looked_at(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(mini_kb, tmp_path / "kb")
    before = kb.manifest()
    dump = changed_dump(tmp_path / "half.xml", share=0.5)
    with pytest.raises(DeepEdError, match=r"Version 2 links .* version 1 links .*: more than `margin` 0\.005 below"):
        run(kb, dump)
    assert kb.manifest() == before
    assert [each.state for each in versions(kb)] == ["refused", "current"]
    assert version(kb, 2).open("linker").id == kb.open("linker").id


def test_an_unfinished_knowledge_base_and_a_version_are_not_refreshed(
    corpus_kb: KnowledgeBase, refreshed: KnowledgeBase, tmp_path: Path
) -> None:
    empty = KnowledgeBase(tmp_path / "empty", create=True)
    with pytest.raises(DeepEdError, match=r"is not complete\. Build it first"):
        run(empty, MINI_DUMP)
    with pytest.raises(DeepEdError, match=r"is one version\. Refresh the knowledge base itself"):
        run(version(refreshed, 1), MINI_DUMP)


def test_a_dump_that_is_missing_or_broken_changes_nothing(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(mini_kb, tmp_path / "kb")
    before = kb.manifest()
    broken = tmp_path / "broken.xml"
    broken.write_text("<html>")
    for dump, message in ((tmp_path / "none.xml", "No such file"), (broken, "not a MediaWiki dump")):
        with pytest.raises(DeepEdError, match=message):
            run(kb, dump)
    assert kb.manifest() == before


POINTS = ("draft", "corpus", "vectors", "index", "checked", "followed", "switched")


def test_a_kill_at_any_point_leaves_a_whole_version_and_the_same_command_goes_on(
    mini_kb: KnowledgeBase, refreshed: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb, dump = copy_of(mini_kb, tmp_path / "kb"), changed_dump(tmp_path / "fresh.xml", share=0.03)
    before = kb.manifest()["parts"]

    class KilledError(Exception):
        pass

    def die(point: str) -> None:
        if point == f"refresh/{last}":
            raise KilledError

    monkeypatch.setattr(refresh, "reached", die)
    for last in POINTS:
        with pytest.raises(KilledError):
            run(kb, dump, margin=0.05)
        parts = (refreshed if last == "switched" else mini_kb).manifest()["parts"]
        assert {name: record["id"] for name, record in kb.manifest()["parts"].items()} == {
            name: record["id"] for name, record in parts.items()
        }
    assert number_of(kb) == 2
    assert version(kb, 1).manifest()["parts"] == before


def test_changes_of_the_running_service_belong_to_every_version(refreshed: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(refreshed, tmp_path / "kb")
    ChangeLog(kb.home).append([Change("P7", {"title": "Lake Zarbon", "aliases": ["Lake Zarbon"]})])
    texts = "The ferry crosses Lake Zarbon."
    for number in (1, 2):
        (found,) = open_kb(version(kb, number).location).link(texts, [(18, 29)])
        assert found.candidates[0].title == "Lake Zarbon"
