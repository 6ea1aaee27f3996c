"""What the server does, apart from HTTP: one linker and its knowledge base for many requests at once.

Finding mentions, linking and writing replies run in threads, one at a time: short requests in batches, long ones in
slices between them. The event loop only reads small bodies and waits. The arrays are memory-mapped, so all replicas of a
node share one copy.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError

from deeped_ray import __version__
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.answers import Answers
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.live import Live
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.serving.batcher import Batcher
from deeped_ray.serving.changes import follow
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.memory import collect_when_idle
from deeped_ray.serving.metrics import Metrics
from deeped_ray.serving.rel import rel_work
from deeped_ray.serving.replies import Replies
from deeped_ray.serving.schemas import MAX_MENTIONS, MAX_TEXT_CHARACTERS
from deeped_ray.serving.turns import TooLargeError, watch
from deeped_ray.serving.work import Work, check_limit
from deeped_ray.types import DeepEdError, Document

SMALL_BODY = 16_000
"""Bytes that the event loop reads itself, in a millisecond or so. Larger bodies are read in the long lane."""
BYTES_PER_MENTION = 100
"""What the queue counts as one mention in a body that is not read yet."""
Reader = Callable[[bytes, Pause], Work]
Request = Callable[[Pause], Work]
Found = TypeVar("Found")


class UnhealthyError(Exception):
    """The linker no longer gives the answers it gave when it started."""


class LinkingService:
    """Opens all parts when it starts: those that are made later change no answer until the next start.

    Changes to single entities (`linking.live`) are followed at once.
    """

    def __init__(self, args: AppArgs) -> None:
        base = KnowledgeBase(args.kb)
        self._first = Linker.open(base, args.model, detection=DetectionConfig(**args.detection))
        self.live = Live(base, self._first, Lookup(base).open_all())
        self.metrics = Metrics()
        self._replies = Replies(self._first, max_mb=args.max_reply_mb)
        self._deadline_s = args.deadline_s
        self._version: dict[str, Any] = {
            "deeped_ray": __version__,
            "model": args.model,
            "linker": None if args.model == "prior" else base.open("linker").id,
            "knowledge_base": base.open("corpus").id,
        }
        self._batcher: Batcher[Request, bytes] = Batcher(
            self._run,
            max_batch=args.max_batch_mentions,
            max_waiting=args.max_waiting_mentions,
            deadline_s=args.deadline_s,
            budget_s=args.max_work_s,
        )
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._known = self._choose_known()
        self._expected = self._answers_to(self._known)
        self.live.poll()

    @property
    def linker(self) -> Linker:
        """With all changes so far."""
        return self.live.linker

    @property
    def lookup(self) -> Lookup:
        return self.live.lookup

    @property
    def version(self) -> dict[str, Any]:
        return {**self._version, "changes": self.live.changes.version}

    async def answer(self, read: Reader, body: bytes) -> bytes:
        """The body of the reply. Raises OverloadedError if too much work is waiting."""
        if len(body) > SMALL_BODY:
            size = self._batcher.max_batch + min(len(body), MAX_TEXT_CHARACTERS) // BYTES_PER_MENTION
            return await self._batcher.submit(partial(read, body), size=size)
        work = read(body, no_pause)
        return await self._batcher.submit(lambda _: work, size=work.size)

    async def in_turn(self, find: Callable[[], Found]) -> Found:
        """A look-up that may take some 40 ms. In a thread, and in its turn, so that many of them slow nobody down."""
        deadline = time.monotonic() + self._deadline_s

        def run() -> Found:
            with self._batcher.turns.turn("long", deadline=deadline):
                return find()

        return await asyncio.to_thread(run)

    async def watch(self) -> None:
        """End this process if it hangs, and let it look for garbage while it has little to do."""
        await asyncio.gather(
            watch(self._batcher.turns), collect_when_idle(lambda: self._batcher.is_long_under_way), follow(self.live)
        )

    # -- in the threads of the queue

    def _run(self, requests: Sequence[Request], pause: Pause) -> list[bytes | Exception]:
        """The replies to some requests, whose texts are linked together."""
        linker = self.linker  # the same for the whole batch
        found = [self._find_mentions(request, linker, pause) for request in requests]
        works = [each for each in found if not isinstance(each, Exception)]
        documents = [document for _, each in works for document in each]
        self.metrics.batch(sum(len(document.mentions) for document in documents))
        explain = any(text.explain for work, _ in works for text in work.texts)
        linked = iter(linker.link_batch(documents, explain=explain, pause=pause))
        return [
            each if isinstance(each, Exception) else self._reply(each[0], [next(linked) for _ in each[1]], pause)
            for each in found
        ]

    def _find_mentions(self, request: Request, linker: Linker, pause: Pause) -> tuple[Work, list[Document]] | Exception:
        """The texts with their mentions, or what is wrong with them: the other requests of the batch go on."""
        try:
            work = request(pause)
            pause(self._replies.sampler.detection_s(work.texts, pause))
            documents = [
                linker.document(each.text, each.spans, mentions=each.mentions, pause=pause) for each in work.texts
            ]
            num_mentions = sum(len(document.mentions) for document in documents)
            check_limit(num_mentions, "mentions", limit=MAX_MENTIONS)
            self._replies.check(work, documents, pause)
        except (DeepEdError, RequestValidationError) as error:
            return error
        return work, documents

    def _reply(self, work: Work, linked: Sequence[Answers], pause: Pause) -> bytes | Exception:
        answers = [found.at_least(text.threshold, top=text.top) for text, found in zip(work.texts, linked, strict=True)]
        self.metrics.answers(answers)
        try:
            return self._replies.join(work.write(answers), pause)
        except TooLargeError as error:
            return error

    # -- health

    async def check_in_thread(self) -> None:
        """In a thread of its own: a busy replica is not ill."""
        await asyncio.get_running_loop().run_in_executor(self._checker, self.check)

    async def check_through_queue(self) -> None:
        """The same, and an empty text goes through the queue: fails while too much work is waiting."""
        await self.answer(rel_work, b'{"text": ""}')
        await self.check_in_thread()

    def check(self) -> None:
        """Whether the linker still finds and links what it did when it started."""
        if (found := self._answers_to(self._known)) != self._expected:
            raise UnhealthyError(f"Self-check failed: {self._known!r} now gives {found}; it gave {self._expected}.")

    def _choose_known(self) -> str:
        """The names of the most linked entity and its neighbours. Linking them also compiles and maps what is needed."""
        first = self.lookup.catalogue.title(int(self.lookup.catalogue.num_links.argmax()))
        titles = [first, *(near.title for near in self.lookup.related([first], count=3))]
        text = ", ".join(titles)
        answers = self._answers_to(text)
        if not any(surface == title for surface, title in answers):
            raise DeepEdError(
                f"Self-check failed: the linker links none of {titles} to itself, but gives {answers}."
                " Retrain it with jobs/train_linker.py."
            )
        return text

    def _answers_to(self, text: str) -> list[tuple[str, str | None]]:
        """Mentions and their best candidates: first those found in the text, then the names in it as given spans."""
        ends = list(itertools.accumulate(len(name) + 2 for name in text.split(", ")))
        names = [(end - 2 - len(name), end - 2) for name, end in zip(text.split(", "), ends, strict=True)]
        # by the parts alone: a change may rightly change these answers
        documents = [self._first.document(text), self._first.document(text, names)]
        found = [each for predictions in self._first.link_batch(documents) for each in predictions]
        return [(each.surface, each.candidates[0].title if each.candidates else None) for each in found]
