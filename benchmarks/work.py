"""What requests at the limits are expected to take before they are done, what they take, and their longest step.

In one process, as a replica works, by its processor time: a busy machine matters little. `taken` is the work over what was
expected of it; `ratio` is the one that is farthest from 1. The longest step is how long a short request would wait.

python benchmarks/work.py --kb KB
"""

import itertools
import json
import os
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _harness import parser_of, write_json

from deeped_ray.running.console import table
from deeped_ray.serving import memory
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.link import link_work
from deeped_ray.serving.nif import nif_work
from deeped_ray.serving.rel import rel_work
from deeped_ray.serving.service import LinkingService, Reader

MILLION = 1_000_000
BRIEF = {"top": 0, "explain": False}
SENTENCE = "Montreal met Toronto in the Stanley Cup. "


class Clock:
    """The pause of a request that nobody waits for: adds up what is expected, and keeps the longest step."""

    def __init__(self) -> None:
        self.expected_s, self.longest_s = 0.0, 0.0
        self._last = time.thread_time()

    def __call__(self, expected_s: float = 0.0) -> None:
        self.expected_s += expected_s
        now = time.thread_time()
        self.longest_s, self._last = max(self.longest_s, now - self._last), now


def body(text: str, **options: Any) -> bytes:
    return json.dumps({"text": text, **BRIEF, **options}, ensure_ascii=False).encode()


def listed(names: Sequence[str], **options: Any) -> bytes:
    ends = list(itertools.accumulate(len(name) + 2 for name in names))
    spans = [[end - 2 - len(name), end - 2] for name, end in zip(names, ends, strict=True)]
    return body(", ".join(names), spans=spans, **options)


def repeated(unit: str) -> bytes:
    return body(unit * (MILLION // len(unit)))


def punctuated(*names: str) -> list[str]:
    ends = itertools.islice(itertools.product("-.,;!", repeat=6), 4_900)
    return [f"{name}{''.join(end)}" for end in ends for name in names]


def nif(text: str, number: int) -> bytes:
    turtle = "@prefix nif: <http://persistence.uni-leipzig.org/nlp2rdf/ontologies/nif-core#> .\n"
    turtle += f'<http://e/d#c> a nif:Context ; nif:isString "{text}" .\n' + "".join(
        f'<http://e/d#{i}> a nif:Phrase ; nif:beginIndex "{9 * i}" ; nif:endIndex "{9 * i + 8}" ;'
        " nif:referenceContext <http://e/d#c> .\n"
        for i in range(number)
    )
    return turtle.encode()


def requests(service: LinkingService) -> dict[str, tuple[Reader, bytes]]:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdeilmnorst", k=7)).title() for _ in range(20_000)]
    titles = service.lookup.catalogue.titles(np.arange(min(len(service.lookup.catalogue), 10_000)))
    link = {
        "9,900 mentions that are found, 100,000 dots": body(SENTENCE * 3_300 + "." * 100_000),
        "10,000 times one name": listed(["Montreal"] * 10_000),
        "10,000 titles": listed([titles[i % len(titles)] for i in range(10_000)]),
        "3,000 titles with reasons": listed([titles[i % len(titles)] for i in range(3_000)], top=7, explain=True),
        "9,900 unknown names of two words": listed([" ".join(words[i : i + 2]) for i in range(9_900)]),
        "9,900 names that share a word": listed([f"Montreal {word}" for word in words[:9_900]]),
        "9,800 names of a person, with punctuation": listed(punctuated("Queen Victoria", "Victoria")),
        "256 texts of 39 mentions": b"[" + b",".join([body(SENTENCE * 13)] * 256) + b"]",
        "a million characters in lower case": repeated("the keeper stopped a puck on ice and skated away "),
        "a million characters in capitals": repeated(" ".join(words).upper()[:100_000]),
        "a million characters of initials": repeated("A.B.C."),
        "a million combining marks": repeated("\u0300\u0316"),
        "a million Thai characters": repeated("ประเทศไทยมีกรุงเทพมหานคร"),
    }
    rel = json.dumps({"text": "Montreal " * 10_000, "spans": [[9 * i, 8] for i in range(10_000)]}).encode()
    return {
        **{name: (partial(link_work, version=service.version), each) for name, each in link.items()},
        "REL, 10,000 mentions": (rel_work, rel),
        "NIF, 8,000 phrases": (partial(nif_work, confidence=True), nif("Montreal " * 10_000, 8_000)),
    }


def measure(service: LinkingService, name: str, read: Reader, request: bytes) -> tuple[Any, ...]:
    began, clock = time.thread_time(), Clock()
    (reply,) = service._run([partial(read, request)], clock)
    clock()
    taken_s = time.thread_time() - began
    answer = f"{len(reply) / 1e6:.1f} MB" if isinstance(reply, bytes) else f"refused: {str(reply)[:50]}"
    return name, clock.expected_s, taken_s, taken_s / clock.expected_s, 1000 * clock.longest_s, answer


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # as Ray sets it for a replica
    service = LinkingService(AppArgs(kb=str(args.kb)))
    memory.settle()
    rows = [measure(service, name, *request) for name, request in requests(service).items()]
    print(table(["request", "expected s", "taken s", "taken", "longest step ms", "reply"], rows))
    worst = max(rows, key=lambda row: abs(row[3] - 1))
    print(f"\nfarthest from what was expected: {worst[3]:.2f}, {worst[0]}")
    write_json(args, claim="work of a request over what was expected", ratio=worst[3], requests=rows)


if __name__ == "__main__":
    main()
