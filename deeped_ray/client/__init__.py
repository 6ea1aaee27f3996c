"""A server's answers as Python objects: what a knowledge base in this process would give, without one.

    with deeped_ray.Client("https://linker.example.com", token=TOKEN) as client:
        for mention in client.link("Montreal met Toronto in the Stanley Cup."):
            print(mention.surface, mention.entity.title, mention.probability)

`AsyncClient` has the same calls to await. Both are written out, so that editors and type checkers know them; what a call
does, its steps, is there once. Of other packages only httpx is needed.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from deeped_ray import __version__
from deeped_ray.client import lookups
from deeped_ray.client.asking import Ask, Asking, Steps
from deeped_ray.client.errors import ClientError as ClientError
from deeped_ray.client.errors import RefusedError as RefusedError
from deeped_ray.client.errors import ServerAwayError as ServerAwayError
from deeped_ray.client.errors import ServerSlowError as ServerSlowError
from deeped_ray.client.errors import ServerVersionError as ServerVersionError
from deeped_ray.client.errors import TokenError as TokenError
from deeped_ray.client.pieces import link_all
from deeped_ray.predictions import Predictions
from deeped_ray.types import (
    DeepEdError,
    Document,
    EntityDetails,
    Mention,
    Mentions,
    Name,
    NamedEntity,
    RelatedEntity,
)

CONNECT_S = 10.0
LOCAL = ("127.0.0.1", "localhost", "::1")
T = TypeVar("T")


class _Calls:
    """What can be asked, in steps that either client goes."""

    def __init__(
        self, url: str, *, token: str | None = None, timeout_s: float = 60.0, patience_s: float = 60.0
    ) -> None:
        """The address of a server, and the API token if it wants one.

        Waits `timeout_s` for each answer. A server that is busy or restarts is asked again for `patience_s`.
        """
        self.url = url.rstrip("/")
        address = httpx.URL(self.url)
        if address.scheme not in ("http", "https") or not address.host:
            raise DeepEdError(f"{url!r} is not the address of a server. It begins with http:// or https://.")
        self._token, self._timeout_s = token, timeout_s
        self._asking = Asking(self.url, timeout_s=timeout_s, patience_s=patience_s)
        # Python has to know no proxy for this machine
        self._settings: dict[str, Any] = {
            "headers": {"User-Agent": f"deeped-ray/{__version__}"}
            | ({"Authorization": f"Bearer {token.strip()}"} if token else {}),
            "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            "trust_env": address.host not in LOCAL,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _link(
        self,
        texts: Iterable[str | Document],
        *,
        threshold: float,
        explain: bool,
        mentions: Mentions | None,
    ) -> Steps[list[Predictions]]:
        return link_all(self._asking, [*texts], {"threshold": threshold, "explain": explain, "mentions": mentions})

    def _request(self, ask: Ask) -> dict[str, Any]:
        return {"method": ask.method, "url": self.url + ask.path, "content": ask.body}


def _document(text: str, spans: Sequence[tuple[int, int]] | None) -> str | Document:
    return text if spans is None else Document("", text, tuple(Mention(start, end) for start, end in spans))


class Client(_Calls):
    """Asks a server. May be shared by threads, and used in processes that are forked."""

    _http: httpx.Client | None = None
    _process = 0

    def link(
        self,
        text: str,
        spans: Sequence[tuple[int, int]] | None = None,
        *,
        threshold: float = 0.0,
        explain: bool = True,
        mentions: Mentions | None = None,
    ) -> Predictions:
        """One prediction per span, in the given order. Without spans, one per mention that the server finds.

        `mentions` is "names" or, as Wikipedia links, "all"; by default the server's choice.
        Below `threshold` a mention gets no entity. Without `explain`, predictions lack attended words and support.
        """
        document = _document(text, spans)
        return self.link_all([document], threshold=threshold, explain=explain, mentions=mentions)[0]

    def link_all(
        self,
        texts: Iterable[str | Document],
        *,
        threshold: float = 0.0,
        explain: bool = True,
        mentions: Mentions | None = None,
    ) -> list[Predictions]:
        """`link` for many texts at once, which is faster. A `Document` is linked at its own mentions."""
        return self._go(self._link(texts, threshold=threshold, explain=explain, mentions=mentions))

    def entity(self, title: str) -> EntityDetails:
        """An entity by its title, by a redirect to it, or by its Wikidata id."""
        return self._go(lookups.entity(self._asking, title))

    def mention(self, surface: str) -> Name:
        """What a name can mean, most probable entity first."""
        return self._go(lookups.mention(self._asking, surface))

    def resembling(self, name: str, *, count: int = 10) -> list[NamedEntity]:
        """Entities with a name that resembles the given one."""
        return self._go(lookups.resembling(self._asking, name, count))

    def related(self, titles: str | Sequence[str] = (), text: str = "", *, count: int = 10) -> list[RelatedEntity]:
        """The entities nearest to an entity, to a text, or to a mix of several, without the given ones."""
        return self._go(lookups.related(self._asking, titles, text, count))

    def relatedness(self, title: str, other: str) -> float:
        """Cosine of two entities; 0 if one of them has no vector."""
        return self._go(lookups.relatedness(self._asking, title, other))

    def version(self) -> dict[str, Any]:
        """Versions of the server's software, linker and knowledge base."""
        return self._go(lookups.version(self._asking))

    def close(self) -> None:
        if self._http is not None and self._process == os.getpid():
            self._http.close()
        self._http = None

    def __del__(self) -> None:
        self.close()  # in a notebook or a pipeline nobody else does

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_http"}

    def _go(self, steps: Steps[T]) -> T:
        outcome: httpx.Response | httpx.HTTPError | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Ask):
                try:
                    outcome = self._connection().request(**self._request(step))
                except httpx.HTTPError as error:
                    outcome = error
            else:
                time.sleep(step)
                outcome = None

    def _connection(self) -> httpx.Client:
        """A forked process has connections of its own: two on one would get each other's answers."""
        if self._http is None or self._process != os.getpid():
            self._http, self._process = httpx.Client(**self._settings), os.getpid()
        return self._http


class AsyncClient(_Calls):
    """The same calls, to await. Many may be under way at once."""

    _http: httpx.AsyncClient | None = None

    async def link(
        self,
        text: str,
        spans: Sequence[tuple[int, int]] | None = None,
        *,
        threshold: float = 0.0,
        explain: bool = True,
        mentions: Mentions | None = None,
    ) -> Predictions:
        """One prediction per span, in the given order. Without spans, one per mention that the server finds."""
        document = _document(text, spans)
        return (await self.link_all([document], threshold=threshold, explain=explain, mentions=mentions))[0]

    async def link_all(
        self,
        texts: Iterable[str | Document],
        *,
        threshold: float = 0.0,
        explain: bool = True,
        mentions: Mentions | None = None,
    ) -> list[Predictions]:
        """`link` for many texts at once. A `Document` is linked at its own mentions."""
        return await self._go(self._link(texts, threshold=threshold, explain=explain, mentions=mentions))

    async def entity(self, title: str) -> EntityDetails:
        """An entity by its title, by a redirect to it, or by its Wikidata id."""
        return await self._go(lookups.entity(self._asking, title))

    async def mention(self, surface: str) -> Name:
        """What a name can mean, most probable entity first."""
        return await self._go(lookups.mention(self._asking, surface))

    async def resembling(self, name: str, *, count: int = 10) -> list[NamedEntity]:
        """Entities with a name that resembles the given one."""
        return await self._go(lookups.resembling(self._asking, name, count))

    async def related(
        self, titles: str | Sequence[str] = (), text: str = "", *, count: int = 10
    ) -> list[RelatedEntity]:
        """The entities nearest to an entity, to a text, or to a mix of several, without the given ones."""
        return await self._go(lookups.related(self._asking, titles, text, count))

    async def relatedness(self, title: str, other: str) -> float:
        """Cosine of two entities; 0 if one of them has no vector."""
        return await self._go(lookups.relatedness(self._asking, title, other))

    async def version(self) -> dict[str, Any]:
        """Versions of the server's software, linker and knowledge base."""
        return await self._go(lookups.version(self._asking))

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
        self._http = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _go(self, steps: Steps[T]) -> T:
        outcome: httpx.Response | httpx.HTTPError | None = None
        self._http = self._http or httpx.AsyncClient(**self._settings)
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Ask):
                try:
                    outcome = await self._http.request(**self._request(step))
                except httpx.HTTPError as error:
                    outcome = error
            else:
                await asyncio.sleep(step)
                outcome = None
