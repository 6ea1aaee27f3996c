"""A linker and look-ups that follow the changes to their knowledge base (`knowledge.changes`, `additions`).

`Live.poll` reads what others have changed, `Live.write` makes changes itself. Both end with a new `linker` and `lookup`,
copies of the first ones with other tables of entities and names. Who works with the old ones may finish.
"""

import copy
import functools
import logging
import threading
from collections.abc import Sequence

from deeped_ray.corpus.entity_files import OwnEntity, entity_of
from deeped_ray.corpus.folded import Folded
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, ChangeLog, Changes, Recorded
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.additions import Additions, LiveCatalogue, LiveMentions
from deeped_ray.linking.encoding import Floats, Kept
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup, NamedEntity, RelatedEntity
from deeped_ray.linking.own_names import NamesDetector
from deeped_ray.linking.retrieval import Retriever
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError

MOST_MORE = 1000
"""Neighbours that are looked at beyond those asked for, in place of entities that were taken off."""
_log = logging.getLogger(__name__)


class Live:
    """Threads may share it."""

    def __init__(self, kb: KnowledgeBase, linker: Linker, lookup: Lookup) -> None:
        self._first = (linker, lookup)
        self.linker, self.lookup = linker, lookup
        self.changes, self._log = Changes(), ChangeLog(kb.home)
        self._folded = frozenset(Folded.read(kb.open("corpus")).files)
        self._kb = kb
        self._embedder: TextEmbedder | None = None
        self._parsed: dict[str, tuple[Recorded, OwnEntity]] = {}
        self._vectors: dict[str, tuple[OwnEntity, Floats]] = {}
        self._find = functools.cache(lambda title: lookup.catalogue.find(title))  # every change asks for all titles
        self._lock = threading.Lock()

    def poll(self) -> bool:
        """Read what others have changed; returns whether there was anything."""
        with self._lock:
            return self._apply(self._log.read_new())

    @property
    def home(self) -> Location:
        """Where more can be written beside the parts. Raises an error if nothing can."""
        self._kb.require_writable()
        return self._kb.home

    def write(self, changes: Sequence[Change]) -> list[Recorded]:
        """Make changes: durable and applied here when this returns."""
        self._kb.require_writable()
        with self._lock:
            self._apply(self._log.read_new())
            recorded = self._log.append(changes)
            self._apply(recorded)
            return recorded

    def _apply(self, recorded: Sequence[Recorded]) -> bool:
        new = [each for each in recorded if each.file not in self._folded]
        if not new:
            return False
        self.changes.apply(new)
        entities, removed = self._resolved()
        additions = Additions.of(
            entities,
            removed,
            first_id=len(self._first[1].catalogue),
            find=self._find,
            vectors=self._embedded(entities),
        )
        self.linker, self.lookup = _live_linker(self._first[0], additions), LiveLookup(self._first[1], additions)
        return True

    def _resolved(self) -> tuple[list[OwnEntity], list[str]]:
        """What holds now. What was looked at before is not looked at again."""
        parsed = {id(each): entity for each, entity in self._parsed.values()}
        found = [(each, parsed.get(id(each)) or _parse(each)) for each in in_order(self.changes)]
        self._parsed = {each.change.id: (each, entity) for each, entity in found if entity is not None}
        # of two ids with one title, the later change has it
        titled = {entity.title: entity for _, entity in found if entity is not None}
        return [*titled.values()], [normalize_title(each.change.id) for each, _ in found if each.change.entity is None]

    def _embedded(self, entities: Sequence[OwnEntity]) -> dict[str, Floats]:
        """Vectors of entities that the catalogue lacks. What has not changed is not embedded again."""
        held = self._vectors
        lacking = [each for each in entities if self._find(each.title) is None]
        new = [each for each in lacking if each.title not in held or held[each.title][0] is not each]
        if new:
            self._embedder = self._embedder or TextEmbedder(self._kb)
            made = self._embedder.embed_all([(each.title, text_of(each)) for each in new])
            held |= {each.title: (each, vector) for each, vector in zip(new, made, strict=True)}
        self._vectors = {each.title: held[each.title] for each in lacking}
        return {title: vector for title, (_, vector) in self._vectors.items()}


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
    return "\n".join([entity.description, *(example.text for example in entity.examples)])


class LiveInputs(LinkerInputs):
    """Inputs with entities more and less."""

    def __init__(self, base: LinkerInputs, additions: Additions, *, has_model: bool) -> None:
        """The prior alone needs no vectors."""
        self.__dict__.update(base.__dict__)
        self._additions = additions
        self.mentions = LiveMentions(base.mentions, additions)
        self.catalogue = LiveCatalogue(base.catalogue, additions)
        if has_model:
            self.entity_vectors = _longer(base.entity_vectors.own, additions)
        if has_model and base.config.retrieves:
            found = base.retriever
            self.retriever = Retriever(
                found.names,
                found._index,
                found._graph,
                self.catalogue,
                entity_vectors=self.entity_vectors,
                link_vectors=found._link_vectors,
            )

    def _retrieve(self, *arguments: object) -> Kept:
        kept = super()._retrieve(*arguments)  # type: ignore[arg-type]
        if not self._additions.removed:
            return kept
        left = ~self._additions.is_removed(kept.entity)
        return kept._replace(mention=kept.mention[left], entity=kept.entity[left], evidence=kept.evidence[left])


def _live_linker(base: Linker, additions: Additions) -> Linker:
    linker = copy.copy(base)
    linker.inputs = LiveInputs(base.inputs, additions, has_model=base.model is not None)
    linker.__dict__.pop("_knowledge", None)
    linker.__dict__["detector"] = NamesDetector(base.detector, additions.names)
    if base.model is not None:
        linker.__dict__["_folding"] = base._folding.of(linker.inputs.entity_vectors)
    return linker


class LiveLookup(Lookup):
    """Look-ups with entities more and less."""

    def __init__(self, base: Lookup, additions: Additions) -> None:
        self.__dict__.update(base.__dict__)
        self.__dict__["catalogue"] = LiveCatalogue(base.catalogue, additions)
        self.__dict__["_mentions"] = LiveMentions(base._mentions, additions)
        self.__dict__["_vectors"] = _longer(base._vectors, additions)
        self._gone = frozenset(base.catalogue.title(each) for each in additions.removed)

    def resembling(self, name: str, *, count: int = 10) -> list[NamedEntity]:
        found = super().resembling(name, count=count + len(self._gone))
        return [each for each in found if each.title not in self._gone][:count]

    def related(self, titles: str | Sequence[str] = (), text: str = "", *, count: int = 10) -> list[RelatedEntity]:
        found = super().related(titles, text, count=count + min(len(self._gone), MOST_MORE))
        return [each for each in found if each.title not in self._gone][:count]


def _longer(vectors: Floats, additions: Additions) -> Layers:
    return Layers(vectors, additions.vectors if len(additions.vectors) else None)
