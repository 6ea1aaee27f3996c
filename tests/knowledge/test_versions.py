"""Versions share their parts, change places in one step, and outlive each other."""

from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.knowledge.versions import (
    KEPT,
    address_of,
    adopt,
    draft_of,
    give_up,
    note,
    number_of,
    switch,
    version,
    versions,
)
from deeped_ray.types import DeepEdError
from tests.s3 import S3, prefix


def write_part(kb: KnowledgeBase, name: str, value: int, *parents: str) -> None:
    with kb.write(name, config={"value": value}, parents=parents) as folder:
        np.save(folder / "numbers.npy", np.full(10, value))


def value_of(kb: KnowledgeBase, name: str = "pages") -> int:
    return int(kb.open(name).array("numbers")[0])


@pytest.fixture
def kb(tmp_path: Path) -> KnowledgeBase:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    write_part(kb, "pages", 1)
    write_part(kb, "corpus", 1, "pages")
    return kb


def refreshed(kb: KnowledgeBase, value: int) -> int:
    draft = draft_of(kb)
    write_part(draft, "pages", value)
    write_part(draft, "corpus", value, "pages")
    switch(kb, number_of(draft))
    return number_of(kb)


def test_a_draft_leaves_the_current_version_as_it_is(kb: KnowledgeBase) -> None:
    before = kb.manifest()
    draft = draft_of(kb)
    write_part(draft, "pages", 2)
    assert (value_of(kb), value_of(draft)) == (1, 2)
    assert kb.manifest() == before


def test_a_draft_begins_with_the_parts_of_the_current_version_and_copies_none(kb: KnowledgeBase) -> None:
    draft = draft_of(kb)
    assert draft.open("corpus").location == kb.open("corpus").location
    assert len(list((kb.root / "parts").iterdir())) == 2


def test_a_draft_is_taken_up_again(kb: KnowledgeBase) -> None:
    write_part(draft_of(kb), "pages", 2)
    assert value_of(draft_of(kb)) == 2
    assert [each.state for each in versions(kb)] == ["draft", "current"]


def test_a_draft_of_another_version_than_the_current_one_is_given_up(kb: KnowledgeBase) -> None:
    refreshed(kb, 2)
    write_part(draft_of(kb), "pages", 3)
    switch(kb, 1)
    assert value_of(draft_of(kb)) == 1


def test_switching_is_seen_by_who_opens_the_knowledge_base_anew_and_by_nobody_else(kb: KnowledgeBase) -> None:
    held = kb.open("pages").array("numbers")
    assert refreshed(kb, 2) == 2
    assert value_of(KnowledgeBase(kb.root)) == 2
    assert held[0] == 1


def test_one_can_go_back_and_forth(kb: KnowledgeBase) -> None:
    refreshed(kb, 2)
    switch(kb, 1)
    assert (number_of(kb), value_of(kb)) == (1, 1)
    switch(kb, 2)
    assert (number_of(kb), value_of(kb)) == (2, 2)
    assert [each.state for each in versions(kb)] == ["current", "earlier"]


def test_a_version_is_a_knowledge_base_with_an_address(kb: KnowledgeBase) -> None:
    refreshed(kb, 2)
    assert [value_of(KnowledgeBase(address_of(kb, number))) for number in (1, 2)] == [1, 2]


def test_what_a_stage_changes_in_the_current_version_is_kept_when_it_is_left(kb: KnowledgeBase) -> None:
    write_part(kb, "corpus", 7, "pages")
    refreshed(kb, 2)
    write_part(kb, "corpus", 8, "pages")
    switch(kb, 1)
    assert value_of(kb, "corpus") == 7
    switch(kb, 2)
    assert value_of(kb, "corpus") == 8


def test_writing_removes_no_part_that_another_version_names(kb: KnowledgeBase) -> None:
    refreshed(kb, 2)
    write_part(kb, "pages", 3)
    assert value_of(version(kb, 1)) == 1


def test_the_last_few_are_kept_and_their_parts(kb: KnowledgeBase) -> None:
    for value in range(2, 7):
        refreshed(kb, value)
    assert [each.number for each in versions(kb)] == [6, 5, 4]
    assert len(list((kb.root / "parts").iterdir())) == 2 * KEPT
    assert value_of(version(kb, 4)) == 4


def test_a_kill_before_the_switch_leaves_the_old_and_after_it_the_new(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest, written = KnowledgeBase.write_manifest, list[str]()

    class KilledError(Exception):
        pass

    def dying(self: KnowledgeBase, manifest: object, *, after: int) -> None:
        if len(written) == after:
            raise KilledError
        written.append(str(self))
        write_manifest(self, manifest)  # type: ignore[arg-type]

    for after, expected in ((0, 1), (1, 1), (2, 2)):
        written.clear()
        number = number_of(draft_of(kb)) if number_of(kb) == 1 else 2
        if after == 0:
            write_part(draft_of(kb), "pages", 2)
            write_part(draft_of(kb), "corpus", 2, "pages")
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(KnowledgeBase, "write_manifest", lambda *args, last=after: dying(*args, after=last))
            switch(kb, number)
        assert value_of(KnowledgeBase(kb.root)) == expected
    assert [each.state for each in versions(kb)] == ["current", "earlier"]
    assert number_of(draft_of(kb)) == 3


def test_a_refused_draft_is_no_longer_taken_up(kb: KnowledgeBase) -> None:
    note(draft_of(kb), state="refused", check={"accuracy": 0.5})
    assert next((each.state, each.check) for each in versions(kb)) == ("refused", {"accuracy": 0.5})
    assert number_of(draft_of(kb)) == 3


def test_a_draft_of_pages_that_are_no_longer_there_does_not_become_current(kb: KnowledgeBase) -> None:
    """It would undo what was folded into them meanwhile."""
    draft = draft_of(kb)
    write_part(draft, "pages", 2)
    write_part(kb, "pages", 7)
    with pytest.raises(DeepEdError, match=r"has changed since .* was begun from it"):
        switch(kb, number_of(draft))
    assert value_of(kb) == 7
    assert value_of(draft_of(kb)) == 7


def test_drafts_of_two_purposes_do_not_meet_and_one_can_take_the_place_of_the_current_version(
    kb: KnowledgeBase,
) -> None:
    refreshing, compacting = draft_of(kb), draft_of(kb, "compact")
    write_part(compacting, "pages", 4)
    assert (number_of(refreshing), number_of(compacting)) == (2, 3)
    assert value_of(draft_of(kb)) == value_of(kb)
    adopt(kb, compacting)
    assert (value_of(kb), number_of(kb), [each.number for each in versions(kb)]) == (4, 1, [2, 1])
    with pytest.raises(DeepEdError, match="Run the same command again"):
        adopt(kb, refreshing)


def test_a_draft_that_is_given_up_leaves_nothing(kb: KnowledgeBase) -> None:
    draft = draft_of(kb)
    write_part(draft, "pages", 2)
    give_up(draft)
    write_part(kb, "corpus", 5, "pages")
    assert [each.number for each in versions(kb)] == [1]
    assert len(list((kb.root / "parts").iterdir())) == 2


def test_a_part_can_be_kept_for_newer_parents_and_says_what_it_was_made_from(kb: KnowledgeBase) -> None:
    made_from = kb.open("corpus").record["parents"]
    draft = draft_of(kb)
    write_part(draft, "pages", 2)
    with pytest.raises(ArtifactError, match="older pages part"):
        draft.open("corpus")
    draft.keep("corpus", parents=["pages"])
    assert draft.open("corpus").id == kb.open("corpus").id
    assert draft.open("corpus").record["made_from"] == made_from


def test_a_version_that_is_not_there_is_named_with_those_that_are(kb: KnowledgeBase) -> None:
    with pytest.raises(DeepEdError, match=r"has no version 4\. It has 1"):
        version(kb, 4)
    with pytest.raises(ArtifactError, match="deeped versions"):
        KnowledgeBase(address_of(kb, 4))


def test_a_folder_that_is_called_versions_is_not_taken_for_ours(tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "versions" / "2024", create=True)
    assert kb.home == kb.location


def test_versions_lie_on_object_storage_too(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPED_LEASE_S", "0.5")
    kb = KnowledgeBase(prefix("kb"), create=True)
    write_part(kb, "pages", 1)
    write_part(kb, "corpus", 1, "pages")
    refreshed(kb, 2)
    switch(kb, 1)
    assert [value_of(each) for each in (kb, version(kb, 2))] == [1, 2]
