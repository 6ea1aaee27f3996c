"""One question to the server, asked again while it is busy. What to do is said in steps, so that the two clients share it.

A generator of steps yields an `Ask`, and is sent the reply or the error; or it yields seconds to wait, and is sent None.
"""

import json
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import httpx

from deeped_ray import __version__
from deeped_ray.client.errors import (
    ClientError,
    RefusedError,
    ServerAwayError,
    ServerSlowError,
    ServerVersionError,
    TokenError,
)
from deeped_ray.types import UnknownEntityError

BUSY = (429, 502, 503, 504)
TOO_LARGE = (408, 413)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
VERSION = "Deeped-Version"
T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    body: bytes | None = None


Steps: TypeAlias = Generator[Ask | float, httpx.Response | httpx.HTTPError | None, T]


class TooLargeError(RefusedError):
    """Less at once may be answered."""


class Asking:
    """What is the same for all questions to one server."""

    def __init__(self, url: str, *, timeout_s: float, patience_s: float) -> None:
        self.url, self._timeout_s, self._patience_s = url, timeout_s, patience_s
        self._has_answered = False

    def ask(self, read: Callable[[Any], T], method: str, path: str, content: object = None) -> Steps[T]:
        """What `read` makes of the JSON of the reply."""
        body = None if content is None else json.dumps(content, ensure_ascii=False).encode()
        end, wait_s = time.monotonic() + self._patience_s, FIRST_WAIT_S
        while True:
            outcome = yield Ask(method, path, body)
            problem = self._passing_problem(outcome)
            if problem is None:
                assert isinstance(outcome, httpx.Response)
                return self._read(outcome, read)
            asked_s = _retry_after(outcome, otherwise=wait_s)
            if time.monotonic() + asked_s > end:
                raise problem
            yield asked_s * random.uniform(1, 1.2)  # of many clients, not all come back at once
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _passing_problem(self, outcome: httpx.Response | httpx.HTTPError | None) -> ClientError | None:
        """A problem that may be over in a moment. Raises what will not be."""
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in BUSY:
                self._has_answered = True
                return None
            return ServerAwayError(
                f"{self.url} has been busy or starting for {self._patience_s:g} s. It says: {_detail(outcome)}"
            )
        if isinstance(outcome, httpx.ReadTimeout | httpx.WriteTimeout):
            raise ServerSlowError(
                f"{self.url} gave no answer within {self._timeout_s:g} s. Give the client a longer `timeout_s`, or send"
                " less at once."
            ) from outcome
        away = ServerAwayError(f"{self.url} cannot be reached: {outcome}.")
        if not self._has_answered:  # the address may be wrong: say so at once
            raise away from outcome
        return away

    def _read(self, reply: httpx.Response, read: Callable[[Any], T]) -> T:
        status, detail = reply.status_code, _detail(reply)
        if status in TOO_LARGE:
            raise TooLargeError(f"{self.url} refuses the request, which is too large: {detail}")
        if status == 401:
            raise TokenError(f"{self.url} does not accept the token. It says: {detail}")
        if VERSION not in reply.headers:
            raise ServerVersionError(
                f"{self.url} answers with status {status}, but not as a deeped-ray server. Check the address."
            )
        if status == 404 and "no such route" not in detail:
            raise UnknownEntityError(detail)
        theirs = _version_of(reply)
        if status != 200 and theirs == __version__:
            raise RefusedError(f"{self.url} refuses the request: {detail}")
        try:
            if status == 200:
                return read(reply.json())
        except (ValueError, TypeError, LookupError) as error:
            detail = f"the reply is another, {error!r}"
        raise ServerVersionError(
            f"{self.url} runs deeped-ray {theirs}, this is {__version__}, and they do not understand each other: {detail}."
            f" Run pip install 'deeped-ray=={theirs}'."
        )


def _version_of(reply: httpx.Response) -> str:
    told = dict(part.partition("=")[::2] for part in reply.headers[VERSION].split())
    return told.get("deeped_ray", "of an unknown version")


def _retry_after(outcome: httpx.Response | httpx.HTTPError | None, *, otherwise: float) -> float:
    """The seconds that the server gives."""
    told = outcome.headers.get("Retry-After", "") if isinstance(outcome, httpx.Response) else ""
    return float(told) if told.isdigit() else otherwise


def _detail(reply: httpx.Response) -> str:
    """What the server says in an error: a sentence, or a list of problems and where they are."""
    try:
        detail = reply.json()["detail"]
        if isinstance(detail, str):
            return detail
        return "; ".join(f"{'.'.join(map(str, each['where']))}: {each['problem']}" for each in detail)
    except (ValueError, KeyError, TypeError):
        return f"status {reply.status_code}"
