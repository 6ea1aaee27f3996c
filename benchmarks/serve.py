"""Documents per second over HTTP: through Ray Serve, through plain uvicorn, and by the Linker in this process.

Documents are runs of 19 mentions, AIDA's mean, with their spans, as in benchmarks/link.py. Throughput: a few clients, each
sending the next batch of documents as soon as it has its answer. Latency: single documents at given rates, sent by the
clock whether or not earlier ones are answered; waiting counts; medians of five stretches (least to most). Beside a long
text: 20 clients with a short text each, alone and while another client sends a text of a million characters again and again,
five times in turns. All on the loopback interface, the clients on the same cores. Processor time says who uses these.

python benchmarks/serve.py --kb KB --dataset aida:testa.tsv.gz
"""

import asyncio
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from _harness import alternate, finish, parser_of, spread
from hostile import CLIENTS as SHORT_CLIENTS
from hostile import Sending, beside, long_text, waits
from link import of_equal_size

from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.linking.linker import Linker
from deeped_ray.running.console import table
from deeped_ray.running.http import open_url
from deeped_ray.running.local_ray import ROOT, LocalRay, descendants, free_ports, local_ray
from deeped_ray.serving.local import deploy
from deeped_ray.types import Document

CLIENTS = 4
ROUNDS = 5
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
UVICORN = """
import sys, uvicorn
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.service import LinkingService
service = LinkingService(AppArgs(kb=sys.argv[1], max_waiting_mentions=100_000))
uvicorn.run(create_api(service), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


def body_of(documents: Sequence[Document], *, explain: bool) -> bytes:
    """One document is sent as such, several as a list."""
    requests = [
        {"text": document.text, "spans": [(m.start, m.end) for m in document.mentions], "explain": explain}
        for document in documents
    ]
    return json.dumps(requests if len(requests) > 1 else requests[0]).encode()


class Client:
    """One connection that is kept, with as little work as possible: the clients share the cores with the server."""

    def __init__(self, url: str) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=2**20)
        reader, writer = self._streams
        writer.write(b"POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        content = await reader.readexactly(int(_LENGTH.findall(head)[0]))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head[:20]!r}: {content[:200]!r}")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def throughput(url: str, bodies: Sequence[bytes], *, seconds: float) -> float:
    """Bodies answered per second, by clients that never pause."""
    supply, num_answered = itertools.cycle(bodies), 0

    async def client() -> None:
        nonlocal num_answered
        connection = Client(url)
        while time.perf_counter() < end:
            await connection.post(next(supply))
            num_answered += 1
        connection.close()

    start = time.perf_counter()
    end = start + seconds
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return num_answered / (time.perf_counter() - start)


async def latencies(url: str, bodies: Sequence[bytes], *, per_second: float, seconds: float) -> list[float]:
    """Milliseconds from when a request was due until its answer was there."""
    supply, idle = itertools.cycle(bodies), [Client(url) for _ in range(CLIENTS)]
    start = time.perf_counter()

    async def request(due: float) -> float:
        await asyncio.sleep(due - time.perf_counter())
        client = idle.pop() if idle else Client(url)
        await client.post(next(supply))
        idle.append(client)
        return 1000 * (time.perf_counter() - due)

    dues = [start + 0.5 + number / per_second for number in range(int(per_second * seconds))]
    waits = await asyncio.gather(*map(request, dues))
    for client in idle:
        client.close()
    return waits


def beside_a_long_text(url: str, *, seconds: float) -> tuple[float, list[float], list[float]]:
    """How long the long text takes by itself, and the 99th percentiles in ms of clients with short ones: alone, beside it."""
    body = json.dumps({"text": long_text(), "top": 1, "explain": False}).encode()
    start = time.perf_counter()
    with open_url(urllib.request.Request(f"{url}/link", body), timeout_s=60.0) as reply:
        reply.read()
    long_s = time.perf_counter() - start
    alone: list[float] = []
    hostile: list[float] = []
    for _ in range(ROUNDS):
        for found, (times, failures, *_) in (
            (alone, asyncio.run(waits(url, seconds))),
            (hostile, beside(Sending("/link", body), url, seconds)),
        ):
            if failures:
                raise RuntimeError(f"{failures} of {len(times)} short requests failed")
            found.append(float(np.percentile(times, 99)))
    return long_s, alone, hostile


@contextmanager
def plain_uvicorn(kb: Path) -> Iterator[str]:
    port = free_ports(1)[0]
    with subprocess.Popen([sys.executable, "-c", UVICORN, str(kb), str(port)], cwd=ROOT) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(200):
                with suppress(OSError), open_url(f"{url}/healthz", timeout_s=1.0):
                    break
                time.sleep(0.3)
            yield url
        finally:
            process.terminate()


@contextmanager
def ray_serve(kb: Path, *, replicas: int) -> Iterator[tuple[str, int, float]]:
    """The address, the process id of the Ray head, and how long the slowest replica took to start."""
    scale = {"min_replicas": replicas, "max_replicas": replicas}
    with local_ray() as ray:
        url = deploy(ray, kb, autoscaling_config=scale)
        while len(started := _start_seconds(ray)) < replicas:
            time.sleep(0.5)
        time.sleep(2)  # until all of them are known to the proxy
        yield url, ray.pid, max(started)


def _start_seconds(ray: LocalRay) -> list[float]:
    """From Serve's log: from when a replica was asked for until it was ready, its process and imports included."""
    logs = ray.log.parent.glob("ray/session_latest/logs/serve/controller_*.log")
    return [
        float(s)
        for log in logs
        for s in re.findall(r"started successfully on node .* after ([\d.]+)s", log.read_text())
    ]


def private_megabytes(pid: int) -> list[int]:
    """Memory of each replica that no other process shares."""
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if "ServeReplica" in Path(f"/proc/{child}/cmdline").read_text():
                rollup = Path(f"/proc/{child}/smaps_rollup").read_text()
                lines = [line.split() for line in rollup.splitlines() if line.startswith("Private_")]
                found.append(sum(int(line[1]) for line in lines) // 1024)
    return found


PROCESSES = {"ServeReplica": "replicas", "haproxy": "HAProxy"}


def processor_seconds(pid: int) -> dict[str, float]:
    """Of the processes of a Ray so far, by what they are, and of the clients here."""
    found = {"clients": time.process_time(), "replicas": 0.0, "HAProxy": 0.0, "rest of Ray": 0.0}
    for child in descendants(pid):
        with suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_text()
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            name = next((name for part, name in PROCESSES.items() if part in command), "rest of Ray")
            found[name] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--replicas", type=int, default=2, help="replicas of the deployment (default: 2)")
    parser.add_argument("--per-request", type=int, default=16, help="documents in a batch request (default: 16)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="length of each measurement; throughputs in five rounds (default: 10)",
    )
    parser.add_argument("--no-explain", dest="explain", action="store_false", help="answers without their reasons")
    args = parser.parse_args()
    if not (args.kb / "manifest.json").exists():
        parser.error(f"no knowledge base at {args.kb}: run `make demo ONCE=1` first, or give --kb")
    kb, size = args.kb.absolute(), args.per_request
    documents = of_equal_size(read_dataset(args.dataset), count=320)
    batches = [body_of(documents[i : i + size], explain=args.explain) for i in range(0, len(documents), size)]
    singles = [body_of([document], explain=args.explain) for document in documents]

    linker = Linker.open(kb)
    linker.link_batch(documents[:50])

    used: dict[str, list[dict[str, float]]] = {"in batches": [], "one by one": []}

    def round_of(url: str, pid: int) -> tuple[float, float, float]:
        """Documents per second: in this process, by Serve in batches, by Serve one by one."""
        ((seconds,),) = alternate(lambda: linker.link_batch(documents, explain=args.explain), rounds=1)
        rates = []
        for way, bodies, per_body in (("in batches", batches, size), ("one by one", singles, 1)):
            before = processor_seconds(pid)
            rates.append(per_body * asyncio.run(throughput(url, bodies, seconds=args.seconds / ROUNDS)))
            num_documents = rates[-1] * args.seconds / ROUNDS
            after = processor_seconds(pid)
            used[way].append({name: 1000 * (after[name] - before[name]) / num_documents for name in after})
        return len(documents) / seconds, rates[0], rates[1]

    with plain_uvicorn(kb) as url:
        by_uvicorn = size * asyncio.run(throughput(url, batches, seconds=args.seconds))
    with ray_serve(kb, replicas=args.replicas) as (url, pid, ready_s):
        in_process, by_serve, one_by_one = zip(*(round_of(url, pid) for _ in range(ROUNDS)), strict=True)
        rates = {
            "a quarter of the Linker's in this process": statistics.median(in_process) / 4,
            "half of the Linker's in this process": statistics.median(in_process) / 2,
            "half of Serve's in batches": statistics.median(by_serve) / 2,
        }
        rows = []
        for name, rate in rates.items():
            rounds = [
                np.percentile(asyncio.run(latencies(url, singles, per_second=rate, seconds=args.seconds / 2)), [50, 99])
                for _ in range(ROUNDS)
            ]
            rows.append((name, rate, *(spread([each[place] for each in rounds]) for place in (0, 1))))
        memory = private_megabytes(pid)
        long_s, alone, hostile = beside_a_long_text(url, seconds=args.seconds / ROUNDS)
    print(f"single documents by the clock\n{table(['rate', 'documents/s', 'p50 ms', 'p99 ms'], rows)}\n")
    least, median, most = (each(one_by_one) for each in (min, statistics.median, max))
    print(f"single documents, {CLIENTS} clients that never pause: {median:.0f}/s ({least:.0f} to {most:.0f})")
    parts = list(used["in batches"][0])
    times = [
        (way, *(statistics.median(each[part] for each in rounds) for part in parts)) for way, rounds in used.items()
    ]
    print(f"\nprocessor milliseconds a document\n{table(['sent', *parts], times)}\n")
    print(
        f"{SHORT_CLIENTS} clients with a short text each, p99 ms: {spread(alone)} alone, {spread(hostile)} beside a text of"
        f" 1,000,000 characters, which takes {long_s:.1f} s by itself\n"
    )
    print(f"replicas ready after {ready_s:.1f} s; memory that each shares with no other: {memory} MB\n")
    finish(
        args,
        claim=f"{size} documents a request, {args.replicas} replicas, {os.cpu_count()} cores, explained: {args.explain}",
        unit="documents",
        ours=by_serve,
        baseline=in_process,
        baseline_name="Linker in this process",
        others={"plain uvicorn, one process": by_uvicorn},
        latencies=[dict(zip(("rate", "documents_per_s", "p50_ms", "p99_ms"), row, strict=True)) for row in rows],
        ready_s=ready_s,
        one_by_one_per_s=median,
        replica_private_mb=memory,
        processor_ms=used,
        short_p99_ms={"alone": alone, "beside a long text": hostile},
        long_text_s=long_s,
    )


if __name__ == "__main__":
    main()
