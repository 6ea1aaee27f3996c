"""A linker and look-ups that follow the changes to their knowledge base (`knowledge.changes`, `following`, `additions`).

`Live.poll` reads what others have changed, `Live.write` makes changes itself. Both end with a new `linker` and `lookup`,
copies of the first ones with other tables of entities and names. Who works with the old ones may finish.
"""

import copy
import threading
from collections.abc import Sequence

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change, Changes, Recorded
from deeped_ray.linking.additions import Additions, LiveCatalogue, LiveMentions, longer
from deeped_ray.linking.encoding import Kept
from deeped_ray.linking.following import Following, LiveLookup
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.own_names import NamesDetector
from deeped_ray.linking.retrieval import Retriever
from deeped_ray.storage.location import Location


class Live:
    """Threads may share it."""

    def __init__(self, kb: KnowledgeBase, linker: Linker, lookup: Lookup) -> None:
        self._first = (linker, lookup)
        self.linker, self.lookup = linker, lookup
        self._kb, self._following = kb, Following(lookup)
        self._lock = threading.Lock()

    @property
    def changes(self) -> Changes:
        return self._following.changes

    def poll(self) -> bool:
        """Read what others have changed; returns whether there was anything."""
        with self._lock:
            has_changed = self._following.read()
            if has_changed:
                self._renew()
            return has_changed

    @property
    def home(self) -> Location:
        """Where more can be written beside the parts. Raises an error if nothing can."""
        self._kb.require_writable()
        return self._kb.home

    def write(self, changes: Sequence[Change]) -> list[Recorded]:
        """Make changes: durable and applied here when this returns."""
        self._kb.require_writable()
        with self._lock:
            self._following.read()
            recorded = self._following.write(changes)
            self._renew()
            return recorded

    def _renew(self) -> None:
        linker, lookup = self._first
        additions = self._following.additions
        _ = additions.vectors  # now, and not while a request waits
        self.linker, self.lookup = live_linker(linker, additions), LiveLookup(lookup, lambda: additions)


class LiveInputs(LinkerInputs):
    """Inputs with entities more and less."""

    def __init__(self, base: LinkerInputs, additions: Additions, *, has_model: bool) -> None:
        """The prior alone needs no vectors."""
        self.__dict__.update(base.__dict__)
        self._additions = additions
        self.mentions = LiveMentions(base.mentions, additions)
        self.catalogue = LiveCatalogue(base.catalogue, additions)
        if has_model:
            self.entity_vectors = longer(base.entity_vectors.own, additions)
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
        return kept.where(~self._additions.is_removed(kept.entity)) if self._additions.removed else kept


def live_linker(base: Linker, additions: Additions) -> Linker:
    """The same with entities more and less."""
    linker = copy.copy(base)
    linker.inputs = LiveInputs(base.inputs, additions, has_model=base.model is not None)
    linker.__dict__.pop("_knowledge", None)
    linker.__dict__["detector"] = NamesDetector(base.detector, additions.names)
    if base.model is not None:
        linker.__dict__["_folding"] = base._folding.of(linker.inputs.entity_vectors)
    return linker
