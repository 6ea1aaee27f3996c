"""How long 20 clients with short texts wait, alone and beside each attack, in one run.

The clients share the address of the attackers. Each sends the next text as soon as it has its answer. `ratio` is the worst
99th percentile beside an attack over the one alone; every attack has a stretch alone just before it.

python benchmarks/hostile.py --kb KB
"""

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import aiohttp
import numpy as np
from _harness import parser_of, write_json

from deeped_ray.running.console import table
from deeped_ray.running.local_ray import local_ray
from deeped_ray.serving.local import deploy

CLIENTS = 20
SHORT = {"text": "Montreal met Toronto in the Stanley Cup on Saturday; Boston lead the league."}
Attack = Callable[[aiohttp.ClientSession, str, float], Coroutine[None, None, None]]


# -- the attacks, each until a given time


def sending(path: str, body: bytes, *, clients: int = 1) -> Attack:
    """Clients that send the same body again and again, whatever the answer is."""

    async def attack(session: aiohttp.ClientSession, url: str, end: float) -> None:
        async def client() -> None:
            while time.perf_counter() < end:
                async with session.post(f"{url}{path}", data=body) as reply:
                    await reply.read()

        await asyncio.gather(*(client() for _ in range(clients)))

    return attack


def trickling(head: bytes, *, connections: int, every_s: float = 2.0) -> Attack:
    """Connections that send a beginning, then one byte now and then. One that is closed is opened again."""

    async def attack(_: aiohttp.ClientSession, url: str, end: float) -> None:
        host, port = url.removeprefix("http://").split(":")

        async def trickle() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(head)
                while time.perf_counter() < end and not reader.at_eof():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1000), every_s)
                    writer.write(b"x")
                    await writer.drain()
            finally:
                writer.close()

        async def connection() -> None:
            while time.perf_counter() < end:
                with suppress(OSError):
                    await trickle()
                await asyncio.sleep(0.1)

        await asyncio.gather(*(connection() for _ in range(connections)))

    return attack


def attacks() -> dict[str, Attack]:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdeilmnorst", k=7)).title() for _ in range(20_000)]
    names = ", ".join(f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True))
    spans = [[i * 17, i * 17 + 15] for i in range(10_000)]
    turtle = "@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .\n"
    turtle += f'<http://e/d#c> a nif:Context ; nif:isString "{"Montreal " * 10_000}" .\n' + "".join(
        f'<http://e/d#{i}> a nif:Phrase ; nif:beginIndex "{9 * i}" ; nif:endIndex "{9 * i + 8}" ;'
        f" nif:referenceContext <http://e/d#c> .\n"
        for i in range(9_000)
    )
    post = b"POST /link HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    link = {
        "a text of 400,000 characters": {"text": "Montreal met Toronto in the Stanley Cup. " * 9_700},
        "a million combining marks": {"text": "a" + "\u0300\u0316" * 499_999},
        "10,000 unknown names": {"text": names, "spans": spans},
        "a million lists": {"text": "a", "spans": [[0, 1]] * 1_000_000},
    }
    return {
        **{name: sending("/link", json.dumps(body, ensure_ascii=False).encode()) for name, body in link.items()},
        "four texts of 400,000 characters": sending(
            "/link", json.dumps(link["a text of 400,000 characters"]).encode(), clients=4
        ),
        "NIF with 9,000 phrases": sending("/nif", turtle.encode()),
        "150 slow bodies": trickling(post + b"Content-Length: 1000\r\n\r\n{", connections=150),
        "150 bodies that become slow": trickling(
            post + b"Content-Length: 2000000\r\n\r\n" + b" " * 200_000, connections=150
        ),
        "4,200 unfinished headers": trickling(b"GET / HTTP/1.1\r\nHost: a\r\nX: ", connections=4_200),
    }


# -- measuring


async def waits(url: str, seconds: float, attack: Attack | None) -> tuple[list[float], int]:
    """Milliseconds that the clients waited for each answer, and how many requests failed."""
    found: list[float] = []
    failures = 0
    body = json.dumps(SHORT).encode()
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        end = time.perf_counter() + seconds
        hostile = asyncio.create_task(attack(session, url, end)) if attack else None
        if attack:
            await asyncio.sleep(seconds / 5)  # until it is in full swing

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
        if hostile:
            hostile.cancel()
            await asyncio.gather(hostile, return_exceptions=True)
    return found, failures


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement (default: 10)")
    parser.add_argument("--only", help="only attacks whose name has this in it")
    args = parser.parse_args()
    chosen = {name: attack for name, attack in attacks().items() if not args.only or args.only in name}
    rows, ratios = [], {}
    with local_ray() as ray:
        url = deploy(ray, args.kb.absolute(), autoscaling_config={"min_replicas": 2, "max_replicas": 2})
        asyncio.run(waits(url, args.seconds, None))  # until both are known to the proxy
        for name, attack in chosen.items():
            alone, _ = asyncio.run(waits(url, args.seconds, None))
            beside, failures = asyncio.run(waits(url, args.seconds, attack))
            p50, p99, p50_beside, p99_beside = (
                np.percentile(alone, [50, 99]).tolist() + np.percentile(beside, [50, 99]).tolist()
            )
            ratios[name] = p99_beside / p99
            rows.append((name, p50, p99, p50_beside, p99_beside, ratios[name], max(beside), failures, len(beside)))
    headings = ["attack", "alone p50 ms", "p99", "beside p50", "p99", "ratio", "longest", "failed", "requests"]
    print(f"{CLIENTS} clients with short texts, alone and beside an attack\n{table(headings, rows)}\n")
    worst = max(ratios, key=lambda name: ratios[name])
    print(f"worst ratio {ratios[worst]:.2f}: {worst}")
    write_json(args, claim="p99 of short requests beside an attack over alone", ratio=ratios[worst], attacks=rows)


if __name__ == "__main__":
    main()
