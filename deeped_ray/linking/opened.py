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
from deeped_ray.linking.lookup import Lookup
from deeped_ray.storage.location import Address
from deeped_ray.types import Document, LinkerKind, Mentions, Prediction

if TYPE_CHECKING:
    from deeped_ray.linking.linker import Linker


def open(root: Address, *, detection: DetectionConfig | None = None) -> "KnowledgeBase":
    """A finished knowledge base: a folder, a file that `deeped pack` wrote, or the address of either, such as s3://bucket/kb."""
    return KnowledgeBase(root, detection=detection)


class KnowledgeBase(Lookup):
    """Reads each part when it is first needed, and keeps it: open the knowledge base again after a rebuild."""

    def __init__(self, root: Address, *, detection: DetectionConfig | None = None) -> None:
        """`detection` sets how mentions are found in raw text."""
        super().__init__(base.KnowledgeBase(root))
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
    ) -> list[Prediction]:
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
    ) -> list[list[Prediction]]:
        """`link` for many texts at once, which is faster. A `Document` is linked at its own mentions."""
        linker, given = self.linker(model), [*texts]
        found = iter(linker.documents([text for text in given if isinstance(text, str)], mentions=mentions))
        documents = [text if isinstance(text, Document) else next(found) for text in given]
        return [[*found.at_least(threshold)] for found in linker.link_batch(documents, explain=explain)]

    def detect(self, text: str, *, mentions: Mentions | None = None) -> list[Span]:
        """Start and end of every mention in a text: of "names" or, as Wikipedia links, of "all"."""
        return self._detector.spans(text, mentions=mentions)

    def linker(self, model: LinkerKind = "global") -> "Linker":
        """The linker behind `link`: a trained model, or the prior alone; with the changes to entities so far."""
        if model not in self._linkers:
            from deeped_ray.linking.linker import Linker  # imports numba: half a second that look-ups do not need
            from deeped_ray.linking.live import Live

            live = Live(self._kb, Linker.open(self._kb, model, detection=self._detection), Lookup(self._kb))
            live.poll()
            self._linkers[model] = live.linker
        return self._linkers[model]

    @functools.cached_property
    def _detector(self) -> Detector | SpacyDetector:
        return open_detector(self._kb, self._detection)
