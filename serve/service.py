"""What the server does, apart from HTTP: one linker and its knowledge base, asked by many requests at once.

The arrays are memory-mapped, so that all replicas of a node share one copy. Linking runs in a thread, in batches that are
formed across requests; the event loop only parses and waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from deeped_ray import __version__
from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.linking.detection import Span
from deeped_ray.linking.linker import Linker, LinkerKind
from deeped_ray.linking.lookup import Lookup
from deeped_ray.types import DeepEdError, Document, Prediction
from serve.batcher import Batcher
from serve.metrics import Metrics
from serve.schemas import LinkRequest

Predictions = list[Prediction]


@dataclass(frozen=True, slots=True)
class Job:
    """The documents of one request, and how its reply is written."""

    documents: list[Document]
    write: Callable[[list[Predictions]], bytes]
    thresholds: list[float] | None = None
    """One a document; no thresholds are zeros."""
    explain: bool = False

    @property
    def size(self) -> int:
        """Mentions; a document without any is still some work."""
        return sum(1 + len(document.mentions) for document in self.documents)


class LinkingService:
    """Opens everything at once, so that a knowledge base that changes on disk changes nothing until the next start."""

    def __init__(self, kb: str, model: LinkerKind, *, max_batch_mentions: int, max_waiting_mentions: int) -> None:
        base = KnowledgeBase(kb)
        self.linker = Linker.open(base, model)
        self.lookup = Lookup(base).open_all()
        self.metrics = Metrics()
        self.version: dict[str, Any] = {
            "deeped_ray": __version__,
            "model": model,
            "linker": None if model == "prior" else base.open("linker").id,
            "knowledge_base": base.open("corpus").id,
        }
        self._batcher = Batcher(
            self._run, max_batch=max_batch_mentions, max_waiting=max_waiting_mentions, on_batch=self.metrics.batch
        )
        self._known = self._choose_known()

    def _choose_known(self) -> tuple[str, str]:
        """A sentence and what it was linked to at the start; also gets the compiler and the maps warm."""
        assert self.linker.detector is not None
        for entity_id in range(min(100, len(self.lookup.catalogue))):
            title = self.lookup.catalogue.title(entity_id)
            best = self.linker.link(title, [(0, len(title))])[0].best
            if best is not None:
                return title, best.title
        raise DeepEdError("This knowledge base does not know the names of its own entities. Build its corpus again.")

    def check(self) -> None:
        """Whether linking still gives what it gave at the start."""
        text, expected = self._known
        best = self.linker.link(text, [(0, len(text))])[0].best
        if best is None or best.title != expected:
            raise RuntimeError(f"{text!r} is linked to {best and best.title!r}, not to {expected!r} any more.")

    async def check_through_queue(self) -> None:
        """The same, but by the way that requests take: fails while too many wait."""
        document = self.linker.document(self._known[0], [(0, len(self._known[0]))])
        await self.answer(Job([document], lambda _: b""))

    async def documents(self, texts: Sequence[tuple[str, Sequence[Span] | None]]) -> list[Document]:
        """Texts with their mentions; these are found in a thread where they are not given."""
        if all(spans is not None for _, spans in texts):
            return [self.linker.document(text, spans) for text, spans in texts]
        return await asyncio.to_thread(lambda: [self.linker.document(text, spans) for text, spans in texts])

    async def answer(self, job: Job) -> bytes:
        return await self._batcher.submit(job, size=job.size)

    def _run(self, jobs: Sequence[Job]) -> list[bytes]:
        """In the batcher's thread: link the documents of all jobs together, and write the replies."""
        documents = [document for job in jobs for document in job.documents]
        predictions = iter(self.linker.link_batch(documents, explain=any(job.explain for job in jobs)))
        replies = []
        for job in jobs:
            thresholds = job.thresholds or [0.0] * len(job.documents)
            answers = [[each.at_least(threshold) for each in next(predictions)] for threshold in thresholds]
            self.metrics.answers([each for answered in answers for each in answered])
            replies.append(job.write(answers))
        return replies

    def write_json(self, requests: Sequence[LinkRequest], answers: Sequence[Predictions], *, is_list: bool) -> bytes:
        """The reply of /link."""
        replies = [
            {"mentions": [_mention(answer, request) for answer in predictions], "version": self.version}
            for request, predictions in zip(requests, answers, strict=True)
        ]
        return orjson.dumps(replies if is_list else replies[0])


def _mention(answer: Prediction, request: LinkRequest) -> dict[str, Any]:
    return {
        "start": answer.start,
        "end": answer.end,
        "surface": answer.surface,
        "entity": answer.best,
        "reason": answer.reason,
        "candidates": answer.candidates[: request.top],
        "attended": [{"word": word, "weight": weight} for word, weight in answer.attended] if request.explain else [],
        "support": [{"mention": place, "weight": w} for place, w in answer.support] if request.explain else [],
    }
