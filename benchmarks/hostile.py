"""How long 20 clients with short texts wait, alone and beside each attack, in one run.

The clients share the machine and the address of the attackers. Each sends the next text as soon as it has its answer. An
attack runs in a process of its own; `attacker` is the share of a core that it takes itself. For each attack, stretches
alone and beside it alternate. `ratio` is the 99th percentile beside the attack over the one alone: the median of all
rounds, with the least and the largest.

python benchmarks/hostile.py --kb KB
"""

import asyncio
import http.client
import itertools
import json
import multiprocessing
import random
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from _harness import parser_of, write_json

from deeped_ray.running.console import table
from deeped_ray.running.local_ray import local_ray
from deeped_ray.serving.local import deploy

CLIENTS = 20
SHORT = {"text": "Montreal met Toronto in the Stanley Cup on Saturday; Boston lead the league."}
WARM_UP_S = 2.0
"""An attack has so long to get into full swing."""
Attack = Callable[[int, float], None]
"""Gets a port, and for how many seconds to attack. In a process of its own."""


# -- the attacks


@dataclass(frozen=True)
class Sending:
    """Clients that send the same body again and again, whatever the answer is."""

    path: str
    body: bytes
    clients: int = 1
    method: str = "POST"

    def __call__(self, port: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._client, args=(port, end), daemon=True) for _ in range(self.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _client(self, port: int, end: float) -> None:
        while time.monotonic() < end:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with suppress(OSError, http.client.HTTPException):
                connection.request(self.method, self.path, self.body)
                connection.getresponse().read()
            connection.close()


@dataclass(frozen=True)
class Trickling:
    """Connections that send a beginning, then one byte every 2 s. One that is closed is opened again."""

    head: bytes
    connections: int

    def __call__(self, port: int, seconds: float) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as closed:
            for _ in range(self.connections):
                self._open(port, closed)
            while time.monotonic() < end:
                for key in [key for key, _ in closed.select(timeout=0)]:  # answered, so it is over
                    closed.unregister(key.fileobj)
                    key.data.close()
                    self._open(port, closed)
                for key in list(closed.get_map().values()):
                    with suppress(OSError):
                        key.data.send(b"x")
                time.sleep(2)

    def _open(self, port: int, closed: selectors.BaseSelector) -> None:
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
        with suppress(OSError):  # the server may refuse before it has read all
            client.sendall(self.head)
        closed.register(client, selectors.EVENT_READ, client)


def attacks() -> dict[str, Attack]:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdeilmnorst", k=7)).title() for _ in range(20_000)]
    names = ", ".join(f"{a} {b}" for a, b in zip(words[:9_000:2], words[1:9_000:2], strict=True))
    spans = [[i * 17, i * 17 + 15] for i in range(4_500)]
    turtle = "@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .\n"
    turtle += f'<http://e/d#c> a nif:Context ; nif:isString "{"Montreal " * 10_000}" .\n' + "".join(
        f'<http://e/d#{i}> a nif:Phrase ; nif:beginIndex "{9 * i}" ; nif:endIndex "{9 * i + 8}" ;'
        f" nif:referenceContext <http://e/d#c> .\n"
        for i in range(8_000)
    )
    post = b"POST /link HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    brief = {"top": 1, "explain": False}  # as much as a reply can hold
    link = {
        "a text of a million characters": {"text": long_text(), **brief},
        "7,800 mentions": {"text": "Montreal met Toronto in the Stanley Cup. " * 2_600, **brief},
        "a million combining marks": {"text": "a" + "\u0300\u0316" * 499_999},
        "4,500 unknown names": {"text": names, "spans": spans, **brief},
        "a reply that is too large": {"text": "Montreal met Toronto in the Stanley Cup. " * 3_300},
        "a million lists": {"text": "a", "spans": [[0, 1]] * 1_000_000},
        "a person with 9,000 full stops": {"text": persons(), "spans": person_spans(), **brief},
    }
    bodies = {name: json.dumps(body, ensure_ascii=False).encode() for name, body in link.items()}
    search = json.dumps({"text": " ".join(words)[:99_000], "count": 100}).encode()
    return {
        **{name: Sending("/link", body) for name, body in bodies.items()},
        "four times 7,800 mentions": Sending("/link", bodies["7,800 mentions"], clients=4),
        "NIF with 8,000 phrases": Sending("/nif", turtle.encode()),
        "four searches by 99,000 characters": Sending("/search", search, clients=4),
        "eight look-ups of unknown names": Sending("/mentions/Zorblatt%20Quimby?count=100", b"", 8, "GET"),
        "150 slow bodies": Trickling(post + b"Content-Length: 1000\r\n\r\n{", connections=150),
        "150 bodies that become slow": Trickling(
            post + b"Content-Length: 2000000\r\n\r\n" + b" " * 200_000, connections=150
        ),
        "4,200 unfinished headers": Trickling(b"GET / HTTP/1.1\r\nHost: a\r\nX: ", connections=4_200),
    }


def long_text() -> str:
    """As long as a text may be, and answered: 7,400 mentions in 2,450 paragraphs."""
    sentence = "the keeper stopped a puck on ice and skated away while the crowd in the cold hall sang an old song. "
    paragraph = "Montreal met Toronto in the Stanley Cup. " + 3 * sentence + sentence[: len(sentence) // 2] + "\n\n"
    return paragraph * (1_000_000 // len(paragraph))


def persons() -> str:
    """Names of a person and short names of hers, all of the same length, that differ only in punctuation."""
    ends = itertools.islice(itertools.product("-.,;!", repeat=6), 4_500)
    return "".join(f"Queen Victoria{''.join(end)} Victoria{''.join(end)} " for end in ends)


def person_spans() -> list[list[int]]:
    return [[36 * i + start, 36 * i + end] for i in range(4_500) for start, end in ((0, 20), (21, 35))]


# -- measuring


async def waits(url: str, seconds: float) -> tuple[list[float], int]:
    """Milliseconds that the clients waited for each answer, and how many requests failed."""
    found: list[float] = []
    failures = 0
    body = json.dumps(SHORT).encode()
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        end = time.perf_counter() + seconds

        async def client() -> None:
            nonlocal failures
            while (start := time.perf_counter()) < end:
                try:
                    async with session.post(f"{url}/link", data=body) as reply:
                        await reply.read()
                        failures += reply.status != 200
                except (aiohttp.ClientError, TimeoutError):
                    failures += 1
                found.append(1000 * (time.perf_counter() - start))

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return found, failures


def beside(attack: Attack, url: str, seconds: float) -> tuple[list[float], int, float]:
    """The same beside an attack, and the share of a core that the attacker takes."""
    port = int(url.rpartition(":")[2])
    before = _seconds_of_children()
    attacker = multiprocessing.get_context("fork").Process(target=attack, args=(port, WARM_UP_S + seconds), daemon=True)
    start = time.monotonic()
    attacker.start()
    time.sleep(WARM_UP_S)
    found, failures = asyncio.run(waits(url, seconds))
    attacker.join()
    return found, failures, (_seconds_of_children() - before) / (time.monotonic() - start)


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(name: str, attack: Attack, url: str, *, seconds: float, rounds: int) -> tuple[Any, ...]:
    """A row of the table: stretches alone and beside the attack alternate."""
    alone: list[float] = []
    hostile: list[float] = []
    longest, failed, number, share = 0.0, 0, 0, 0.0
    for _ in range(rounds):
        alone.append(float(np.percentile(asyncio.run(waits(url, seconds))[0], 99)))
        found, failures, share = beside(attack, url, seconds)
        hostile.append(float(np.percentile(found, 99)))
        longest, failed, number = max(longest, *found), failed + failures, number + len(found)
    ratios = [b / a for a, b in zip(alone, hostile, strict=True)]
    spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
    ratio, p99, p99_beside = (float(np.median(each)) for each in (ratios, alone, hostile))
    print(f"{name}: ratio {ratio:.2f} ({spread})", flush=True)
    return name, p99, p99_beside, ratio, spread, longest, failed, number, share


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements alone and beside each attack (default: 3)")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORDS", help="only attacks with this in their names"
    )
    args = parser.parse_args()
    chosen = {name: each for name, each in attacks().items() if any(words in name for words in args.only)}
    with local_ray() as ray:
        url = deploy(ray, args.kb.absolute(), autoscaling_config={"min_replicas": 2, "max_replicas": 2})
        asyncio.run(waits(url, args.seconds))  # until both are known to the proxy
        measure = partial(compare, url=url, seconds=args.seconds, rounds=args.rounds)
        rows = [measure(name, attack) for name, attack in chosen.items()]
    headings = ["attack", "p99 alone ms", "beside", "ratio", "spread", "longest", "failed", "requests", "attacker"]
    print(f"{CLIENTS} clients with short texts, alone and beside an attack\n{table(headings, rows)}\n")
    worst = max(rows, key=lambda row: row[3])
    print(f"worst ratio {worst[3]:.2f}: {worst[0]}")
    write_json(args, claim="p99 of short requests beside an attack over alone", ratio=worst[3], attacks=rows)


if __name__ == "__main__":
    main()
