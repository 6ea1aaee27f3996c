"""Memory of several knowledge bases behind one endpoint: an application for each, or all in one process.

Every process opens what a replica opens and links some sentences. *Private* is what it shares with no other process, *share*
also counts its part of pages that several have: files of a knowledge base are mapped once per node. Libraries are not told
apart: the first row is a process that has imported the service, and opened nothing.

python benchmarks/several.py --kb kb/mini kb/kleine
"""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from _harness import parser_of, write_json

from deeped_ray.running.console import table

REPLICA = """
import sys
from deeped_ray.linking import linker
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.service import LinkingService
services = [LinkingService(AppArgs(kb=kb)) for kb in sys.argv[1:]]
for service in services:
    for text in ("Montreal met Toronto in the Stanley Cup.", "Apple makes phones in California and Edinburgh."):
        service.linker.link_batch([service.linker.document(text)])
print("ready", flush=True)
sys.stdin.read()
"""


class Memory(NamedTuple):
    private: float
    share: float


@contextlib.contextmanager
def replicas(*groups: Sequence[str]) -> Iterator[list[int]]:
    """A process for each group of knowledge bases; their ids, when all are ready."""
    with contextlib.ExitStack() as stack:
        running = []
        for kbs in groups:
            command = [sys.executable, "-c", REPLICA, *kbs]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.append(stack.enter_context(process))
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                sys.exit("a process ended before it was ready")
        yield [process.pid for process in running]
        for process in running:
            process.communicate()


def memory_of(pid: int) -> Memory:
    """In MiB."""
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    found = {line[0]: int(line[1]) / 2**10 for line in lines if line[0].endswith(":")}
    return Memory(found["Private_Clean:"] + found["Private_Dirty:"], found["Pss:"])


def measure(kbs: Sequence[str]) -> dict[str, Memory]:
    """All numbers of a case are taken while its processes run beside each other."""
    rows: dict[str, Memory] = {}
    cases: dict[str, list[list[str]]] = {
        "nothing opened": [[]],
        "an application for each": [[kb] for kb in kbs],
        "two replicas of each": [[kb] for kb in kbs for _ in range(2)],
        "all in one process": [[*kbs]],
    }
    for name, groups in cases.items():
        with replicas(*groups) as pids:
            found = [memory_of(pid) for pid in pids]
        for kb, each in zip(groups, found, strict=True):
            if name == "an application for each":
                rows[f"{name}: {Path(kb[0]).name}"] = each
        rows[f"{name}, {len(pids)} in all"] = Memory(
            sum(each.private for each in found), sum(each.share for each in found)
        )
    return rows


def main() -> None:
    parser: argparse.ArgumentParser = parser_of(__doc__)
    parser.add_argument("--kb", nargs="+", default=["kb/mini"], help="knowledge bases (default: kb/mini)")
    args = parser.parse_args()
    rows = measure([str(Path(kb).resolve()) for kb in args.kb])
    print("memory in MiB")
    print(table(["processes", "private", "share"], [(name, *each) for name, each in rows.items()]))
    write_json(args, claim=__doc__, rows={name: each._asdict() for name, each in rows.items()})


if __name__ == "__main__":
    main()
