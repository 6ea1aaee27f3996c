"""What changes to single entities cost: linking with 10,000 of them against without any, and the time of one change.

Documents are texts whose mentions are found first, one by one. Added entities have names that no text has, as most have for most texts.
Texts are linked with and without changes by turns, and of each text the shortest of many rounds counts, so that it can be
measured on a busy machine: the ratio of two halves of the rounds says how far to trust it. The knowledge base is copied:
nothing is left in it.

python benchmarks/changes.py --kb KB --changes 10000
"""

import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _harness import finish, parser_of

from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import Change
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.live import Live
from deeped_ray.linking.lookup import Lookup

DESCRIPTION = "A product of steel and wood for teams on the ice, sold in boxes of twelve, repaired by the workshop."


def change(number: int) -> Change:
    name = f"Norrby Item{number}"
    return Change(f"P{number}", {"title": name, "aliases": [f"Item{number}"], "description": DESCRIPTION})


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--changes", type=int, default=10_000, metavar="N", help="entities to add (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=80, metavar="N", help="rounds (default: 80)")
    args = parser.parse_args()
    texts = [document.text for document in read_dataset(args.dataset)][:100]
    with tempfile.TemporaryDirectory() as folder:
        # links, so that a large knowledge base is not copied byte by byte; changes go into a folder of its own
        shutil.copytree(args.kb, f"{folder}/kb", copy_function=_link, ignore=shutil.ignore_patterns("changes", ".*"))
        kb = KnowledgeBase(f"{folder}/kb")
        base = Linker.open(kb)
        live = Live(kb, base, Lookup(kb).open_all())
        base.link_batch([base.document(text) for text in texts])
        before = memory_mib()
        start = time.perf_counter()
        live.write([change(number) for number in range(args.changes)])
        all_s = time.perf_counter() - start
        more = memory_mib() - before
        one_s = []
        for number in range(20):
            start = time.perf_counter()
            live.write([change(args.changes + number)])
            one_s.append(time.perf_counter() - start)
        linker = live.linker
        same = [base.link_batch([base.document(text)]) == linker.link_batch([linker.document(text)]) for text in texts]
        print(f"{sum(same)} of {len(same)} texts get the same answers")
        print(f"{args.changes:,} changes in one call: {all_s:.2f} s, {more:.0f} MiB more memory at peak")
        print(f"one more change: {1000 * statistics.median(one_s):.0f} ms (longest {1000 * max(one_s):.0f})")
        taken = np.array([[seconds(each, texts) for each in (linker, base)] for _ in range(args.rounds)])
        halves = [each.min(axis=0).sum(axis=1) for each in (taken[::2], taken[1::2])]
        more_s, without_s = taken.min(axis=0).sum(axis=1)
        low, high = sorted(with_them / without - 1 for with_them, without in halves)
        print(
            f"linking takes {more_s / without_s - 1:.1%} more with them ({low:.1%} and {high:.1%} in halves of the rounds):"
            f" {1e6 * (more_s - without_s) / len(texts):.0f} of {1e6 * without_s / len(texts):.0f} microseconds a text"
        )
        finish(
            args,
            claim=f"Linking raw texts with {args.changes:,} changes.",
            unit="documents",
            ours=len(texts) / more_s,
            baseline=len(texts) / without_s,
            baseline_name="without changes",
            all_s=all_s,
            one_s=one_s,
            more_mib=more,
        )


def seconds(linker: Linker, texts: Sequence[str]) -> list[float]:
    """That each text takes."""
    clock = [time.perf_counter()]
    for text in texts:
        linker.link_batch([linker.document(text)])
        clock.append(time.perf_counter())
    return np.diff(clock).tolist()


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy(source, target)


if __name__ == "__main__":
    main()
