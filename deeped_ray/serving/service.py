"""What the server does, apart from HTTP: one linker and its knowledge base, asked by many requests at once.

The arrays are memory-mapped, so that all replicas of a node share one copy. Linking runs in a thread, in batches that are
formed across requests; the event loop only parses and waits.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from deeped_ray import __version__
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig, Span
from deeped_ray.linking.linker import Linker, LinkerKind
from deeped_ray.linking.lookup import Lookup
from deeped_ray.serving.batcher import Batcher
from deeped_ray.serving.metrics import Metrics
from deeped_ray.serving.schemas import MAX_MENTIONS, MAX_TEXT_CHARACTERS, LinkRequest
from deeped_ray.types import DeepEdError, Document, Prediction

Predictions = list[Prediction]


class TooLargeError(DeepEdError):
    """A request of more work than one may ask for."""


class UnhealthyError(Exception):
    """Linking does not give what it should."""


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

    def __init__(
        self,
        kb: str,
        model: LinkerKind,
        *,
        detection: DetectionConfig | None = None,
        max_batch_mentions: int,
        max_waiting_mentions: int,
    ) -> None:
        base = KnowledgeBase(kb)
        self.linker = Linker.open(base, model, detection=detection)
        self.lookup = Lookup(base).open_all()
        self.metrics = Metrics()
        self.version: dict[str, Any] = {
            "deeped_ray": __version__,
            "model": model,
            "linker": None if model == "prior" else base.open("linker").id,
            "knowledge_base": base.open("corpus").id,
        }
        self._batcher: Batcher[Job, tuple[bytes, Predictions]] = Batcher(
            self._run, max_batch=max_batch_mentions, max_waiting=max_waiting_mentions, on_batch=self.metrics.batch
        )
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._known = self._choose_known()
        self._expected = self._answers_to(self._known)

    def _choose_known(self) -> str:
        """A sentence of the most linked entity and its neighbours; also gets the compiler and the maps warm."""
        first = self.lookup.catalogue.title(int(self.lookup.catalogue.num_links.argmax()))
        titles = [first, *(near.title for near in self.lookup.related([first], count=3))]
        text = ", ".join(titles)
        answers = self._answers_to(text)
        if not any(surface == title for surface, title in answers):
            raise DeepEdError(f"Of {text!r} nothing is linked to itself, but {answers}. Train the linker again.")
        return text

    def _answers_to(self, text: str) -> list[tuple[str, str | None]]:
        """What is found in the text and what it is linked to, then the same for its names as they are."""
        ends = list(itertools.accumulate(len(name) + 2 for name in text.split(", ")))
        names = [(end - 2 - len(name), end - 2) for name, end in zip(text.split(", "), ends, strict=True)]
        documents = [self.linker.document(text), self.linker.document(text, names)]
        found = [each for predictions in self.linker.link_batch(documents) for each in predictions]
        return [(each.surface, each.best.title if each.best else None) for each in found]

    def check(self) -> None:
        """Whether finding and linking still give what they gave at the start."""
        if (found := self._answers_to(self._known)) != self._expected:
            raise UnhealthyError(f"{self._known!r} gives {found}, not {self._expected} any more.")

    async def check_in_thread(self) -> None:
        """In a thread of its own: a replica that is busy is not ill."""
        await asyncio.get_running_loop().run_in_executor(self._checker, self.check)

    async def check_through_queue(self) -> None:
        """The same, and that requests are taken: fails while too many wait."""
        await self._batcher.submit(Job([], lambda _: b""), size=1)
        await self.check_in_thread()

    async def documents(self, texts: Sequence[tuple[str, Sequence[Span] | None]]) -> list[Document]:
        """Texts with their mentions, which are found where they are not given; in a thread where that takes long."""
        num_characters = sum(len(text) for text, _ in texts)
        if num_characters > MAX_TEXT_CHARACTERS:
            raise TooLargeError(f"The texts have {num_characters:,} characters, {MAX_TEXT_CHARACTERS:,} at most.")

        def documents() -> list[Document]:
            return [self.linker.document(text, spans) for text, spans in texts]

        is_quick = all(spans is not None for _, spans in texts) and sum(len(spans or ()) for _, spans in texts) < 1000
        found = documents() if is_quick else await asyncio.to_thread(documents)
        num_mentions = sum(len(document.mentions) for document in found)
        if num_mentions > MAX_MENTIONS:
            raise TooLargeError(f"The texts have {num_mentions:,} mentions, {MAX_MENTIONS:,} at most.")
        return found

    async def answer(self, job: Job) -> bytes:
        reply, predictions = await self._batcher.submit(job, size=job.size)
        self.metrics.answers(predictions)
        return reply

    def _run(self, jobs: Sequence[Job]) -> list[tuple[bytes, Predictions]]:
        """In the batcher's thread: link the documents of all jobs together, and write the replies."""
        documents = [document for job in jobs for document in job.documents]
        predictions = iter(self.linker.link_batch(documents, explain=any(job.explain for job in jobs)))
        replies = []
        for job in jobs:
            thresholds = job.thresholds or [0.0] * len(job.documents)
            answers = [[each.at_least(threshold) for each in next(predictions)] for threshold in thresholds]
            replies.append((job.write(answers), [each for answered in answers for each in answered]))
        return replies

    def write_json(self, requests: Sequence[LinkRequest], answers: Sequence[Predictions]) -> list[dict[str, Any]]:
        """The reply of /link for each document."""
        return [
            {"mentions": [_mention(answer, request) for answer in predictions], "version": self.version}
            for request, predictions in zip(requests, answers, strict=True)
        ]


def layers(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans that overlap, as other systems' clients may send them, in lists that do not: each is linked by itself."""
    found: list[list[Span]] = []
    ends: list[tuple[int, int]] = []  # a heap: where each list ends, and which it is
    for span in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if ends and ends[0][0] <= span[0]:
            place = ends[0][1]
            heapq.heapreplace(ends, (span[1], place))
            found[place].append(span)
        else:
            heapq.heappush(ends, (span[1], len(found)))
            found.append([span])
    return found


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
