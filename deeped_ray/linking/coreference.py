"""Section 6: if a document names the person "Peter Such", its mention "Such" gets the candidates of "Peter Such".

    words       the paper: the words of m are consecutive words of M, but not all of them
    substring   the authors' code: m is a substring of M, next to a space

Mentions are compared in lower case. If several are equal then, the first one counts. M is a mention of a person if its
candidate with the highest prior is a person.
"""

import functools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import MAX_SURFACE, REMEMBERED, Senses, average
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.text import normalize_mention, words_of

CoreferenceRule = Literal["words", "substring"]
_FEW_PAIRS = 2000
"""Of names and persons: up to so many, all are compared."""


def share_person_candidates(
    surfaces: Sequence[str],
    candidates: Sequence[Senses],
    is_person: npt.NDArray[np.bool_],
    rule: CoreferenceRule,
    pause: Pause = no_pause,
) -> list[Senses]:
    """The candidates of every mention. If person mentions contain a mention, it gets their candidates instead.

    p(e|m) = sum over M of p(e|M) / number of M, where p(e|M) is M's own prior even if M gets other candidates too.
    """
    names = [_compared(surface) for surface in paced(surfaces, pause)]
    first: dict[str, Senses] = {}
    for name, own in zip(names, candidates, strict=True):
        first.setdefault(name, own)
    persons = [
        name for name, own in first.items() if len(own.entity) and is_person[own.best.entity_id] and _is_whole(name)
    ]
    if not persons:
        return [*candidates]
    holders = _holders(first, persons, rule, pause)
    groups = {found for found in holders.values() if found}
    merged = {found: average([first[holder] for holder in sorted(found)]) for found in paced(groups, pause)}
    shared = {name: merged[found] for name, found in holders.items() if found}
    return [shared.get(name, own) for name, own in zip(names, candidates, strict=True)]


def _holders(
    first: Collection[str], persons: Sequence[str], rule: CoreferenceRule, pause: Pause
) -> dict[str, frozenset[str]]:
    """Each name with the names of persons that contain it."""
    if rule == "words" and len(first) * len(persons) <= _FEW_PAIRS:
        spaced = {name: _spaced_name(name) for name in first}
        by_words = {spaced[person]: person for person in reversed(persons)}
        return {
            name: frozenset(person for whole, person in by_words.items() if own in whole and own != whole)
            for name, own in spaced.items()
            if len(own) > len(_NO_WORDS)
        }
    if rule == "words":
        words = {name: _words(name) if len(name) <= MAX_SURFACE else words_of(name) for name in paced(first, pause)}
        # Names that differ only in punctuation count once: a stranger can send thousands, and all their pairs.
        distinct = {_spaced(words[person]): person for person in reversed(persons)}.values()
        tails = _Tails(
            (_spaced(words[person][at:]), person)
            for person in paced(distinct, pause)
            for at in range(len(words[person]))
        )
        holders = {
            spaced: frozenset(each for each in tails.beginning_with(spaced) if _spaced(words[each]) != spaced)
            for spaced in paced({_spaced(own) for own in words.values() if own}, pause)
        }
        return {name: holders[_spaced(own)] for name, own in words.items() if own}
    # A name begins the rest of a person's name behind a space, or ends what stands before one. So all sets together hold
    # no more than the letters of all names times their spaces: they grow with the names, not with their square.
    spaces = [
        (person, at) for person in paced(persons, pause) for at, character in enumerate(person) if character == " "
    ]
    after = _Tails((person[at + 1 :], person) for person, at in spaces)
    before = _Tails((person[:at][::-1], person) for person, at in spaces)
    return {
        name: frozenset(after.beginning_with(name) | before.beginning_with(name[::-1]))
        for name in paced(first, pause)
        if name
    }


def _spaced(words: Sequence[str]) -> str:
    """Every word followed by a space, so that "ann" is not found in "anna"."""
    return "".join(f"{word} " for word in words)


class _Tails:
    """Finds names that contain a string: binary search in the sorted tails of all names."""

    def __init__(self, tails: Iterable[tuple[str, str]]) -> None:
        self._tails = sorted(tails)

    def beginning_with(self, text: str) -> set[str]:
        found = set[str]()
        for place in range(bisect_left(self._tails, (text, "")), len(self._tails)):
            tail, name = self._tails[place]
            if not tail.startswith(text):
                break
            found.add(name)
        return found


def _compared(surface: str) -> str:
    return _remembered(surface) if len(surface) <= MAX_SURFACE else normalize_mention(surface).lower()


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered(surface: str) -> str:
    return normalize_mention(surface).lower()


_NO_WORDS = " "


@functools.lru_cache(maxsize=REMEMBERED)
def _spaced_name(name: str) -> str:
    return _NO_WORDS + _spaced(words_of(name))


_words = functools.lru_cache(maxsize=REMEMBERED)(words_of)


def _is_whole(name: str) -> bool:
    """Whether it may contain another name."""
    return " " in name or len(words_of(name)) > 1
