"""Changes to single entities, read from the storage of a knowledge base and made into `Additions`; and look-ups with them."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.entity_files import FIRST_PAGE_ID, OwnEntity, entity_of
from deeped_ray.corpus.folded import Folded
from deeped_ray.corpus.priors import MentionTable
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog, Changes, Recorded
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.additions import Additions, Floats, LiveCatalogue, LiveMentions, longer
from deeped_ray.linking.lookup import Lookup
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, NamedEntity, RelatedEntity

MOST_MORE = 1000
"""Neighbours that are looked at beyond those asked for, in place of entities that were taken off."""
_LOT = 500
"""Entities that are embedded at once: the words of their pages are in memory meanwhile."""
_log = logging.getLogger(__name__)


class Following:
    """What holds of the changes to a knowledge base. One thread at a time."""

    def __init__(self, lookup: Lookup) -> None:
        """What is open in `lookup` stays what changes are looked up in, also if the parts are made again."""
        self.changes, self.additions = Changes(), Additions()
        self._lookup, self._catalogue, self._log = lookup, lookup.catalogue, ChangeLog(lookup._kb.home)
        self._folded = frozenset(Folded.read(lookup._corpus).files)
        self._parsed: dict[str, tuple[Recorded, OwnEntity]] = {}
        self._vectors: dict[str, tuple[OwnEntity, Floats]] = {}
        self._find = functools.cache(self._catalogue.find)  # every change asks for all titles

    def read(self) -> bool:
        """What others have changed; returns whether there was anything."""
        return self._apply(self._log.read_new())

    def write(self, changes: Sequence[Change]) -> list[Recorded]:
        """Durable when this returns."""
        recorded = self._log.append(changes)
        self._apply(recorded)
        return recorded

    def _apply(self, recorded: Sequence[Recorded]) -> bool:
        new = [each for each in recorded if each.file not in self._folded]
        if new:
            self.changes.apply(new)
            entities, removed = self._resolved()
            vectors = functools.partial(self._embedded, entities)
            first = len(self._catalogue)
            self.additions = Additions.of(entities, removed, first_id=first, find=self._find, vectors=vectors)
        return bool(new)

    def _resolved(self) -> tuple[list[OwnEntity], list[str]]:
        """What holds now. What was looked at before is not looked at again."""
        parsed = {id(each): entity for each, entity in self._parsed.values()}
        found = [(each, parsed.get(id(each)) or _parse(each)) for each in in_order(self.changes)]
        self._parsed = {each.change.id: (each, entity) for each, entity in found if entity is not None}
        # of two ids with one title, the later change has it
        titled = {entity.title: entity for _, entity in found if entity is not None}
        return [*titled.values()], [normalize_title(each.change.id) for each, _ in found if each.change.entity is None]

    def _embedded(self, entities: Sequence[OwnEntity]) -> Mapping[str, Floats]:
        """Vectors of entities that the catalogue lacks, or that have a text now. What is known is not embedded again."""
        held = self._vectors
        wanted = [each for each in entities if self._find(each.title) is None or text_of(each)]
        new = [each for each in wanted if each.title not in held or held[each.title][0] is not each]
        for start in range(0, len(new), _LOT):
            lot = new[start : start + _LOT]
            texts, pages = [(each.title, text_of(each)) for each in lot], [self._page(each) for each in lot]
            made = self._lookup._embedder.embed_all(texts, pages)
            held |= {each.title: (each, vector) for each, vector in zip(lot, made, strict=True)}
        self._vectors = {each.title: held[each.title] for each in wanted}
        return {title: vector for title, (_, vector) in self._vectors.items()}

    def _page(self, entity: OwnEntity) -> int | None:
        """The entity whose page and links count too: a wiki's. A text from a file is replaced."""
        known = self._find(entity.title)
        is_of_wiki = known is not None and self._catalogue.page_ids[known] < FIRST_PAGE_ID
        return known if is_of_wiki else None


def changes_to(lookup: Lookup) -> Additions:
    """Those so far."""
    following = Following(lookup)
    following.read()
    return following.additions


def in_order(changes: Changes) -> list[Recorded]:
    return sorted(changes.latest.values(), key=lambda each: (each.file, each.change.id))


def _parse(recorded: Recorded) -> OwnEntity | None:
    """The entity of a change; None if it is taken off, or if it was written by somebody who did not check it."""
    given = recorded.change
    try:
        return entity_of({"id": given.id, **given.entity}, where=recorded.file) if given.entity is not None else None
    except DeepEdError as error:
        _log.warning("left out a change: %s", error)
        return None


def text_of(entity: OwnEntity) -> str:
    return "\n".join(filter(None, [entity.description, *(example.text for example in entity.examples)]))


class LiveLookup(Lookup):
    """Look-ups with entities more and less."""

    def __init__(self, base: Lookup, read: Callable[[], Additions]) -> None:
        """`read` is called when the first part that changes is needed."""
        self.__dict__.update(base.__dict__)
        for name in ("catalogue", "_mentions", "_vectors"):
            self.__dict__.pop(name, None)
        self._base, self._read = base, read

    @classmethod
    def open(cls, kb: KnowledgeBase) -> "LiveLookup":
        """With the changes so far."""
        base = Lookup(kb)
        return cls(base, lambda: changes_to(base))

    @functools.cached_property
    def additions(self) -> Additions:
        return self._read()

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        own = self._base.catalogue
        return LiveCatalogue(own, self.additions) if self.additions else own

    @functools.cached_property
    def _mentions(self) -> MentionTable:
        own = self._base._mentions
        return LiveMentions(own, self.additions) if self.additions else own

    @functools.cached_property
    def _vectors(self) -> Layers:
        return longer(self._base._vectors.own, self.additions)

    @functools.cached_property
    def _gone(self) -> frozenset[str]:
        return frozenset(self._base.catalogue.title(each) for each in self.additions.removed)

    def resembling(self, name: str, *, count: int = 10) -> list[NamedEntity]:
        found = super().resembling(name, count=count + len(self._gone))
        return [each for each in found if each.title not in self._gone][:count]

    def related(self, titles: str | Sequence[str] = (), text: str = "", *, count: int = 10) -> list[RelatedEntity]:
        found = super().related(titles, text, count=count + min(len(self._gone), MOST_MORE))
        return [each for each in found if each.title not in self._gone][:count]
