"""Where a document's time goes: processor time of every step of linking, with reasons, everything that is remembered warm.

Every step is timed without the steps inside it. Rounds repeat the same documents, and the median of the rounds counts.
`--at-once` is how many documents one call links. `--before` takes the JSON of an earlier run, and `--picture` draws both
as bars.

python benchmarks/link_steps.py --kb KB --dataset aida:testa.tsv.gz --json after.json
python benchmarks/link_steps.py ... --at-once 10 --before before.json --picture docs/link-steps.png
"""

import functools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from _harness import parser_of, write_json
from link import MENTIONS, of_equal_size
from matplotlib.figure import Figure

from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.linking import candidates, inputs, linker, retrieval, retrieval_kernels, scoring
from deeped_ray.running.console import table

REST = "the rest"
STEPS: list[tuple[str, Any, str]] = [
    ("words of the text", candidates.KnownWords, "__init__"),
    ("candidates by prior, coreference", inputs.LinkerInputs, "first_candidates"),
    ("entities near the document (FAISS, links)", retrieval_kernels, "look_around"),
    ("entities near the document (FAISS, links)", EntityIndex, "nearest"),
    ("names, pool, measures, choosing", retrieval.Retriever, "candidates"),
    ("titles", retrieval_kernels, "compare"),
    ("titles", retrieval, "words_around"),
    ("arrays for the model", inputs.LinkerInputs, "_encode"),
    ("the model", scoring.FittedModel, "score_all"),
    ("probabilities", linker.Linker, "_judge_all"),
    ("answers in columns, reasons", linker, "columns_of"),
]
"""Name, owner and attribute: calls of the attribute are the step."""


class Clock:
    """Processor time of this thread, by step; what runs inside a step counts for itself."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._running = [REST]
        self._last = time.thread_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._lap()
        self._running.append(name)
        try:
            yield
        finally:
            self._lap()
            self._running.pop()

    def _lap(self) -> None:
        now = time.thread_time()
        self.seconds[self._running[-1]] += now - self._last
        self._last = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return function(*args, **kwargs)

        return call


def round_of(link: Callable[[], object]) -> dict[str, float]:
    """Seconds of every step."""
    clock = Clock()
    with ExitStack() as stack:
        for name, owner, attribute in STEPS:
            timed = clock.timed(name, getattr(owner, attribute))
            stack.enter_context(mock.patch.object(owner, attribute, timed))
        with clock.step(REST):
            link()
    return clock.seconds


def still(expected_s: float = 0.0) -> None:
    """A pause: then one thread does all, and its clock sees it."""


def draw(path: Path, runs: dict[str, dict[str, float]]) -> None:
    """A bar for every run, cut into steps."""
    figure = Figure(figsize=(10, 1.6 + 0.7 * len(runs)))
    axes = figure.subplots()
    steps = [*dict.fromkeys(step for run in runs.values() for step in run)]
    colours = [f"C{number % 10}" for number in range(len(steps))]
    starts = dict.fromkeys(runs, 0.0)
    for number, step in enumerate(steps):
        widths = [run.get(step, 0.0) for run in runs.values()]
        hatch = "//" if number >= 10 else None
        axes.barh([*runs], widths, left=[*starts.values()], color=colours[number], hatch=hatch, label=step)
        starts = {name: starts[name] + width for name, width in zip(runs, widths, strict=True)}
    for name, total in starts.items():
        axes.text(total, list(runs).index(name), f"  {total:.1f} ms", va="center")
    axes.set_xlim(0, 1.12 * max(starts.values()))
    axes.set_xlabel(f"milliseconds of processor time for a document of {MENTIONS} mentions, with reasons")
    axes.invert_yaxis()
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncol=3, fontsize=8, frameon=False)
    figure.savefig(path, bbox_inches="tight", dpi=120)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base with a linker")
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--documents", type=int, default=252, metavar="N", help="documents to link (default: 252)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (default: 5)")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="documents of a call (default: 1)")
    parser.add_argument("--before", type=Path, help="JSON of an earlier run, to compare with")
    parser.add_argument("--picture", type=Path, help="draw bars to this file")
    args = parser.parse_args()
    opened = linker.Linker.open(args.kb)
    documents = of_equal_size(read_dataset(args.dataset), count=args.documents)

    def link() -> None:
        for start in range(0, len(documents), args.at_once):
            opened.link_batch(documents[start : start + args.at_once], pause=still)

    link()  # compile, read what the maps point to, and fill what is remembered
    rounds = [round_of(link) for _ in range(args.rounds)]
    names = [*dict.fromkeys([*(name for name, _, _ in STEPS), REST])]
    after = {name: statistics.median(1000 * each[name] / len(documents) for each in rounds) for name in names}
    runs = {"after": after}
    if args.before:
        runs = {"before": json.loads(args.before.read_text())["milliseconds"], **runs}
    rows = [(name, *(f"{run.get(name, 0.0):.2f}" for run in runs.values())) for name in names]
    sums = ("sum", *(f"{sum(run.values()):.2f}" for run in runs.values()))
    print(table(["step", *runs], [*rows, sums]))
    totals = [1000 * sum(each.values()) / len(documents) for each in rounds]
    print(f"\nsum of a round: {min(totals):.2f} to {max(totals):.2f} ms")
    write_json(args, milliseconds=after, rounds=totals)
    if args.picture:
        draw(args.picture, runs)


if __name__ == "__main__":
    main()
