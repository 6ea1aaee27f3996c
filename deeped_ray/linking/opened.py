"""A knowledge base as users hold it: link texts, find mentions, look up names and entities.

kb = deeped_ray.open("kb/mini")
for mention in kb.link("Montreal met Toronto in the Stanley Cup."):
    print(mention.surface, mention.entity.title, mention.probability)
"""

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deeped_ray.knowledge import base
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, Span, open_detector
from deeped_ray.linking.following import LiveLookup, changes_to
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.own_names import NamesDetector
from deeped_ray.predictions import Predictions
from deeped_ray.storage.location import Address
from deeped_ray.types import Document, LinkerKind, Mentions

if TYPE_CHECKING:
    from deeped_ray.linking.linker import Linker


def open(root: Address, *, detection: DetectionConfig | None = None) -> "KnowledgeBase":
    """A finished knowledge base: a folder, a file that `deeped pack` wrote, or the address of either, such as s3://bucket/kb."""
    return KnowledgeBase(root, detection=detection)


class KnowledgeBase(LiveLookup):
    """Reads each part when it is first needed, and keeps it: open the knowledge base again after a rebuild.

    So it does with the changes to single entities.
    """

    def __init__(self, root: Address, *, detection: DetectionConfig | None = None) -> None:
        """`detection` sets how mentions are found in raw text."""
        lookup = Lookup(base.KnowledgeBase(root))
        super().__init__(lookup, lambda: changes_to(lookup))
        self._detection = detection or DetectionConfig()
        self._linkers: dict[LinkerKind, Linker] = {}

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self._kb)!r})"

    def link(
        self,
        text: str,
        spans: Sequence[Span] | None = None,
        *,
        threshold: float = 0.0,
        explain: bool = True,
        model: LinkerKind = "global",
        mentions: Mentions | None = None,
    ) -> Predictions:
        """One prediction per span, in the given order. Without spans, one per mention that is found in the text.

        `mentions` is "names" or, as Wikipedia links, "all".
        Below `threshold` a mention gets no entity. Without `explain`, predictions lack attended words and support.
        """
        document = self.linker(model).document(text, spans, mentions=mentions)
        return self.link_all([document], threshold=threshold, explain=explain, model=model)[0]

    def link_all(
        self,
        texts: Iterable[str | Document],
        *,
        threshold: float = 0.0,
        explain: bool = True,
        model: LinkerKind = "global",
        mentions: Mentions | None = None,
    ) -> list[Predictions]:
        """`link` for many texts at once, which is faster. A `Document` is linked at its own mentions."""
        linker, given = self.linker(model), [*texts]
        found = iter(linker.documents([text for text in given if isinstance(text, str)], mentions=mentions))
        documents = [text if isinstance(text, Document) else next(found) for text in given]
        linked = linker.link_batch(documents, explain=explain)
        return [Predictions(found.at_least(threshold), found.document.text) for found in linked]

    def detect(self, text: str, *, mentions: Mentions | None = None) -> list[Span]:
        """Start and end of every mention in a text: of "names" or, as Wikipedia links, of "all"."""
        return self._detector.spans(text, mentions=mentions)

    def linker(self, model: LinkerKind = "global") -> "Linker":
        """The linker behind `link`: a trained model, or the prior alone; with the changes to entities so far."""
        if model not in self._linkers:
            from deeped_ray.linking.linker import Linker  # imports numba: half a second that look-ups do not need
            from deeped_ray.linking.live import live_linker

            linker = Linker.open(self._kb, model, detection=self._detection)
            self._linkers[model] = live_linker(linker, self.additions) if self.additions else linker
        return self._linkers[model]

    @functools.cached_property
    def _detector(self) -> Detector | SpacyDetector:
        found = open_detector(self._kb, self._detection)
        return NamesDetector(found, self.additions.names) if self.additions else found
