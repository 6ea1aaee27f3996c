"""What changes to a running knowledge base make of its linker: entities more, names more, entities less.

The parts stay as they are, mapped and shared. Added entities are numbered after those of the catalogue, and their few rows
are held in memory. An `Additions` never changes: a new one is made of each change, and replaces the other between two
batches. Documents without a name of an added or changed entity get the same answers as before, to the byte.

An entity that the knowledge base has keeps its names; a change adds names to it, an address and a Wikidata id. If the change
has a description or examples, its vector is made again: of them and of the page and links that a wiki has of it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.entity_files import OwnEntity, page_id_of
from deeped_ray.corpus.own_entities import url_of
from deeped_ray.corpus.priors import MAX_SURFACE, TITLE_COUNT, Match, MentionTable, Senses
from deeped_ray.corpus.wikidata_ids import WikidataIds, number_of
from deeped_ray.knowledge.layers import Layers
from deeped_ray.text import bare_title, normalize_mention, normalize_title

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Additions:
    """Everything that the changes say, looked up by name."""

    entities: Sequence[OwnEntity] = ()
    """Those that the knowledge base lacks; the first is numbered `first_id`."""
    embed: Callable[[], Mapping[str, Floats]] = dict
    """Vectors by title, of entities that the knowledge base lacks or that have a text now: asked for once, when needed."""
    first_id: int = 0
    names: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Mention -> entity -> count."""
    folded: Mapping[str, str] = field(default_factory=dict)
    """Lower-cased mention -> mention."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Titles and ids of added and changed entities."""
    urls: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[int, OwnEntity] = field(default_factory=dict)
    """Entities of the knowledge base of which something is new."""
    removed: frozenset[int] = frozenset()
    """Entities of the knowledge base that are taken off."""

    @classmethod
    def of(
        cls,
        entities: Sequence[OwnEntity],
        removed: Sequence[str],
        *,
        first_id: int,
        find: Callable[[str], int | None],
        vectors: Callable[[], Mapping[str, Floats]],
    ) -> "Additions":
        """`find` finds titles in the catalogue."""
        added = list[OwnEntity]()
        names: dict[str, dict[int, float]] = {}
        ids: dict[str, int] = {}
        changed: dict[int, OwnEntity] = {}
        for each in entities:
            known = find(each.title)
            if known is None:
                known = first_id + len(added)
                added.append(each)
                _add(names, each.title, known, TITLE_COUNT)
                _add(names, normalize_mention(bare_title(each.title)), known, TITLE_COUNT)
            else:
                changed[known] = each
            for name, count in each.aliases:
                _add(names, name, known, count)
            ids |= dict.fromkeys(filter(None, (each.title, each.id)), known)
        gone = (find(title) for title in removed)
        return cls(
            entities=added,
            embed=vectors,
            first_id=first_id,
            names=names,
            folded={name.lower(): name for name in names},
            ids=ids,
            urls={each.title: each.url for each in entities if each.url}
            | {each.title: url_of(each.title) for each in added if not each.url},
            changed=changed,
            removed=frozenset(each for each in gone if each is not None),
        )

    def __bool__(self) -> bool:
        return bool(self.ids or self.removed)

    @functools.cached_property
    def vectors(self) -> Mapping[str, Floats]:
        return self.embed()

    def find(self, surface: str) -> Senses | None:
        """What a surface means beside what the table says: as it stands, or in other case."""
        mention = normalize_mention(surface)
        counts = self.names.get(mention) or self.names.get(self.folded.get(mention.lower(), ""))
        return _senses(counts) if counts else None

    def is_removed(self, entities: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.fromiter((each in self.removed for each in entities.tolist()), bool, len(entities))


def _add(names: dict[str, dict[int, float]], name: str, entity: int, count: float) -> None:
    if name:
        counts = names.setdefault(name, {})
        counts[entity] = max(counts.get(entity, 0.0), count)


def longer(vectors: Floats, additions: Additions) -> Layers:
    """Vectors with those of added entities, and others in place of those of changed ones."""
    if not additions:
        return Layers(vectors)
    found = additions.vectors
    added = np.stack([found[each.title] for each in additions.entities]) if additions.entities else None
    changed = {entity: found[each.title] for entity, each in additions.changed.items() if each.title in found}
    return Layers(vectors, added, changed)


def _senses(counts: Mapping[int, float]) -> Senses:
    """Most probable first, as the table has them."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    entity, support = np.array([each for each, _ in ordered], np.int64), np.array([count for _, count in ordered])
    return Senses(entity, support / support.sum(), support)


class LiveMentions(MentionTable):
    """A mention table with names more and entities less. Counts compete: p(e|m) is the share of all of them."""

    def __init__(self, base: MentionTable, additions: Additions) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._additions = base, additions

    def match(self, surface: str) -> Match:
        found = self._base.match(surface)
        if len(surface) > MAX_SURFACE:
            return found
        senses, added = self._left(found.candidates), self._additions.find(surface)
        if added is None:
            return found if senses is found.candidates else Match(found.mention, found.rule, senses)
        if not found.mention:
            return Match(normalize_mention(surface), "exact", added)
        return Match(found.mention, found.rule, senses.joined(added) if len(senses) else added)

    def names_of(self, entity: int, *, count: int) -> list[tuple[str, float, float]]:
        """Those that were added come first: few look for others."""
        added = [name for name, counts in self._additions.names.items() if entity in counts]
        known = [each for each in self._base.names_of(entity, count=count) if each[0] not in added]
        own = [
            (name, each.prior, each.support)
            for name in added
            for each in self.match(name).candidates
            if each.entity_id == entity
        ]
        return [*own, *known][:count]

    def _left(self, senses: Senses) -> Senses:
        """Without entities that were taken off. The others share what these had."""
        if not self._additions.removed:
            return senses
        is_left = ~self._additions.is_removed(senses.entity)
        if is_left.all():
            return senses
        prior = senses.prior[is_left]
        total = prior.sum()
        return Senses(senses.entity[is_left], prior / total if total else prior, senses.support[is_left])


class LiveCatalogue(Catalogue):
    """A catalogue with entities more and less."""

    def __init__(self, base: Catalogue, additions: Additions) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._additions = base, additions
        added = additions.entities
        zeros = np.zeros(len(added), np.int64)
        self.page_ids = np.append(base.page_ids, np.array([page_id_of(each.title) for each in added], np.int64))
        self.num_links, self.num_words = np.append(base.num_links, zeros), np.append(base.num_words, zeros)
        # compiled code takes an array that may be written for another type, and would be compiled again
        self.num_links.setflags(write=base.num_links.flags.writeable)
        self.is_person = np.append(base.is_person, np.array([each.is_person for each in added], bool))
        self.is_person[[entity for entity, each in additions.changed.items() if each.is_person]] = True
        changed = {entity: number_of(each.wikidata) for entity, each in additions.changed.items()}
        self.wikidata = LiveIds(base.wikidata, [number_of(each.wikidata) or 0 for each in added], changed)

    def __len__(self) -> int:
        return len(self._base) + len(self._additions.entities)

    def title(self, entity_id: int) -> str:
        own = self._additions.first_id
        return self._base.title(entity_id) if entity_id < own else self._additions.entities[entity_id - own].title

    def titles(self, entity_ids: Ints) -> list[str]:
        if not len(entity_ids) or entity_ids.max() < self._additions.first_id:
            return self._base.titles(entity_ids)
        return [self.title(entity_id) for entity_id in entity_ids.tolist()]

    def url(self, title: str) -> str:
        return self._additions.urls.get(title) or self._base.url(title)

    def find(self, title: str) -> int | None:
        found = self._additions.ids.get(normalize_title(title))
        found = self._base.find(title) if found is None else found
        return None if found in self._additions.removed else found

    def starting_with(self, prefix: str, *, count: int) -> list[int]:
        """Those that were added come first: few look for others."""
        start, first = normalize_title(prefix), self._additions.first_id
        own = [first + place for place, each in enumerate(self._additions.entities) if each.title.startswith(start)]
        gone = self._additions.removed
        known = self._base.starting_with(prefix, count=count + len(gone))
        return [*own, *(each for each in known if each not in gone)][:count]

    def identify(self, name: str) -> int | None:
        found = super().identify(name)
        return None if found in self._additions.removed else found


class LiveIds(WikidataIds):
    """Wikidata ids of entities more, and of those that had none."""

    def __init__(self, base: WikidataIds, added: Sequence[int], changed: Mapping[int, int | None]) -> None:
        self.__dict__.update(base.__dict__)
        new = {entity: number for entity, number in changed.items() if number and not base.numbers[entity]}
        first = len(base.numbers)
        self._base = base
        self._found = {number: entity for entity, number in [*enumerate(added, first), *new.items()] if number}
        rows = {entity: np.array(number, np.uint32) for entity, number in new.items()}
        self.rows = Layers(base.numbers, np.array(added, np.uint32), rows)

    def of(self, entity_ids: Ints) -> list[str | None]:
        return [f"Q{number}" if number else None for number in self.rows[entity_ids].tolist()]

    def find(self, wikidata: str) -> int | None:
        found = self._found.get(number_of(wikidata) or 0)
        return self._base.find(wikidata) if found is None else found
