"""Versions of a knowledge base: the next is made beside the current one, and any can be gone back to.

    KB/manifest.json                      the current version
    KB/versions/<number>/manifest.json    each version: earlier ones, one in the making (draft), those that were refused
    KB/parts/                             the parts of all of them: what has not changed is there once

A version is a knowledge base of its own: `--kb KB/versions/3` opens it. To switch means to replace `manifest.json`, which
is one step: a kill before it leaves the current version as it was, a kill after it leaves the next one.
"""

from typing import Any, Literal, NamedTuple

from deeped_ray.knowledge.base import VERSIONS, KnowledgeBase
from deeped_ray.storage.lease import sole_writer
from deeped_ray.types import DeepEdError

State = Literal["current", "earlier", "draft", "refused"]
Purpose = Literal["refresh", "compact"]
Manifest = dict[str, Any]
KEPT = 3
"""Versions that are kept, the current one included."""


class Version(NamedTuple):
    number: int
    state: State
    made: str
    """When its newest part was made."""
    dumps: list[str]
    check: dict[str, Any]
    """If it came by a refresh: scores of the version before and of this one, on the same documents."""


# -- looking


def number_of(kb: KnowledgeBase) -> int:
    """Of the version that is open. What was built and never refreshed is version 1."""
    return int(kb.manifest().get("version", 1))


def current_of(kb: KnowledgeBase) -> KnowledgeBase:
    return KnowledgeBase(kb.home)


def version(kb: KnowledgeBase, number: int) -> KnowledgeBase:
    """Any version, as a knowledge base."""
    known = _known(kb)
    if number not in known:
        raise DeepEdError(f"{kb.home} has no version {number}. It has {', '.join(map(str, known))}.")
    is_current = number == number_of(current_of(kb))
    return current_of(kb) if is_current else KnowledgeBase(address_of(kb, number))


def address_of(kb: KnowledgeBase, number: int) -> str:
    """What a service opens to serve this version and no other."""
    return str(kb.home / VERSIONS / str(number))


def versions(kb: KnowledgeBase) -> list[Version]:
    """All of them, the latest first."""
    current = number_of(current_of(kb))
    return [_version(version(kb, number), is_current=number == current) for number in reversed(_known(kb))]


def _version(kb: KnowledgeBase, *, is_current: bool) -> Version:
    manifest = kb.manifest()
    made = max((record.get("created", "") for record in manifest["parts"].values()), default="")
    dumps = manifest["parts"].get("pages", {}).get("config", {}).get("dumps", [])
    state: State = "current" if is_current else manifest.get("state", "earlier")
    return Version(number_of(kb), state, made, [dump["file"] for dump in dumps], manifest.get("check", {}))


def _numbers(kb: KnowledgeBase) -> list[int]:
    return sorted(int(name) for name in (kb.home / VERSIONS).children() if name.isdigit())


def _known(kb: KnowledgeBase) -> list[int]:
    return sorted({*_numbers(kb), number_of(current_of(kb))})


# -- the next one


def draft_of(kb: KnowledgeBase, purpose: Purpose = "refresh") -> KnowledgeBase:
    """The version in the making: what a killed run has left of it, or a copy of the current one.

    A draft that began from another version than is current now, or from other pages, is given up.
    """
    began = _beginning(kb)
    with sole_writer(kb.home) as still_mine:
        for number in set(_numbers(kb)) - {number_of(kb)}:
            found = KnowledgeBase(address_of(kb, number))
            manifest = found.manifest()
            is_draft, is_fresh = manifest.get("state") == "draft", manifest.get("began") == began
            if is_draft and is_fresh and manifest["for"] == purpose:
                return found
            if is_draft and not is_fresh:
                found.location.remove()
        number = max(_known(kb)) + 1
        draft = KnowledgeBase(address_of(kb, number), create=True)
        still_mine()
        own = {"version": number, "state": "draft", "for": purpose, "began": began}
        draft.write_manifest({**_bare(kb.manifest()), **own})
    return draft


def _beginning(kb: KnowledgeBase) -> Manifest:
    """What a draft begins from."""
    parts = kb.manifest()["parts"]
    return {"version": number_of(kb), **{name: parts.get(name, {}).get("id") for name in ("pages", "corpus")}}


def require_fresh(kb: KnowledgeBase, draft: KnowledgeBase) -> None:
    """A draft of what is no longer current would undo what has come since: changes that were folded, for instance."""
    if draft.manifest().get("began", _beginning(kb)) != _beginning(current_of(kb)):
        raise DeepEdError(f"{kb.home} has changed since {draft} was begun from it. Run the same command again.")


def give_up(draft: KnowledgeBase) -> None:
    """Remove a draft. Parts that only it has go with the next writer."""
    with sole_writer(draft.home) as still_mine:
        still_mine()
        draft.location.remove()


def note(draft: KnowledgeBase, **values: Any) -> None:
    """Write something into the manifest of a draft: its scores, or that it was refused."""
    with sole_writer(draft.home) as still_mine:
        manifest = {**draft.manifest(), **values}
        still_mine()
        draft.write_manifest(manifest)


def switch(kb: KnowledgeBase, number: int) -> None:
    """Make a version the current one. The last few are kept, to go back to."""
    with sole_writer(kb.home) as still_mine:
        current, next_one = current_of(kb), version(kb, number)
        require_fresh(kb, next_one)
        manifest = {**_bare(next_one.manifest()), "version": number}
        if number != number_of(current):
            # a stage may have changed the current version since its copy was written
            copy = KnowledgeBase(address_of(kb, number_of(current)), create=True)
            copy.write_manifest({**_bare(current.manifest()), "version": number_of(current)})
            still_mine()
            current.write_manifest(manifest)
        KnowledgeBase(address_of(kb, number), create=True).write_manifest(manifest)
        _prune(current)


def adopt(kb: KnowledgeBase, draft: KnowledgeBase) -> None:
    """The parts of a draft in place of the current version's, which keeps its number."""
    with sole_writer(kb.home) as still_mine:
        require_fresh(kb, draft)
        current = current_of(kb)
        number = {name: value for name, value in current.manifest().items() if name == "version"}
        manifest = {**{name: value for name, value in _bare(draft.manifest()).items() if name != "version"}, **number}
        still_mine()
        if number_of(current) in _numbers(kb):  # its copy first: killed in between, the same command comes here again
            KnowledgeBase(address_of(kb, number_of(current))).write_manifest(manifest)
        current.write_manifest(manifest)
        draft.location.remove()
        current.remove_abandoned()


def _bare(manifest: Manifest) -> Manifest:
    """Without what only a draft has."""
    return {key: value for key, value in manifest.items() if key not in ("state", "for", "began")}


def _prune(current: KnowledgeBase) -> None:
    others = [number for number in _numbers(current) if number != number_of(current)]
    for number in others[: max(0, len(others) - (KEPT - 1))]:
        KnowledgeBase(address_of(current, number)).location.remove()
    current.remove_abandoned()
