"""What a fresh dump costs, as a share of a full build from the same dump in the same run.

A knowledge base is built from a dump: corpus, word vectors or those given, entity vectors, index, linker. Then it is
refreshed from the same dump under another name, and from dumps in which 1% and 10% of the pages were changed, all over the
dump. Every command is a process of its own, with a Ray of its own. The linker is kept, and both versions are scored.

python benchmarks/refresh.py                                                              # the mini encyclopedia
python benchmarks/refresh.py --dump wiki.xml.bz2 --megabytes 24 --word-vectors vectors.bin.gz

With --steps, everything runs in this process, one task after the other, and the table has the processor seconds of each step.
So it can be measured on a busy machine. No linker is trained then: both versions are scored by the prior.
"""

import argparse
import bz2
import contextlib
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _harness import parser_of, write_json

from deeped_ray import refresh, stages
from deeped_ray.embeddings import index, trainer
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.versions import switch
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running import tasks
from deeped_ray.running.console import table
from deeped_ray.running.resume import NEW_RUN
from deeped_ray.running.tasks import Outcome

ROOT = Path(__file__).parent.parent
PAGES_PER_STREAM = 100
_PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)
_TEXT_END = re.compile(r"</text>")


def read(dump: Path, megabytes: float) -> str:
    """The first megabytes of a dump as XML, cut after a page."""
    content = dump.read_bytes()
    if dump.suffix == ".bz2":
        decompressor, found = bz2.BZ2Decompressor(), b""
        content = content[: int(megabytes * 2**20)]
        while content:
            try:
                found += decompressor.decompress(content)
            except EOFError:
                break
            content, decompressor = decompressor.unused_data, bz2.BZ2Decompressor()
        content = found
    text = content.decode(errors="ignore")
    return text[: text.rindex("</page>") + len("</page>")] + "\n</mediawiki>\n"


def write(xml: str, target: Path) -> None:
    """As Wikimedia does: a stream for the head, then one for every hundred pages."""
    if target.suffix != ".bz2":
        target.write_text(xml)
        return
    starts = [match.start() for match in _PAGE.finditer(xml)][::PAGES_PER_STREAM]
    cuts = [0, *starts, len(xml)]
    target.write_bytes(b"".join(bz2.compress(xml[a:b].encode()) for a, b in itertools.pairwise(cuts)))


def changed(xml: str, share: float) -> str:
    """Some pages with one sentence more, all over the dump."""
    chance = random.Random(0)

    def change(page: re.Match[str]) -> str:
        if chance.random() >= share:
            return page[0]
        return _TEXT_END.sub(" It was changed in the [[United Kingdom]] on a fresh day.</text>", page[0], count=1)

    return _PAGE.sub(change, xml)


def seconds(*arguments: str) -> tuple[float, dict[str, Any]]:
    """Of a job, its start and the start of its Ray included; and its result."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    passed = time.perf_counter() - start
    print(f"{arguments[0]}: {passed:.1f} s", file=sys.stderr, flush=True)
    return passed, json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dump", type=Path, default=MINI_DUMP, help="a dump (default: the mini encyclopedia)")
    parser.add_argument("--megabytes", type=float, default=1e9, help="of the dump, as on disk (default: all)")
    parser.add_argument("--word-vectors", help="file with word vectors (default: learned from the dump)")
    parser.add_argument("--steps", action="store_true", help="processor seconds of each step, without a linker")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.1], help="of the pages that change")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="deeped-refresh-"))
    try:
        if args.steps:
            print_steps(args, measure_steps(args, folder))
            return
        rows = measure(args, folder)
    finally:
        shutil.rmtree(folder)
    full = rows["full build"]
    print("a fresh dump, as a share of a full build")
    print(table(["what", "seconds", "share"], [(name, each, each / full) for name, each in rows.items()]))
    write_json(args, claim="a fresh dump, as a share of a full build", seconds=rows)


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Of the corpus, as --set takes them."""
    if args.dump != MINI_DUMP:
        return {}
    return {"shard_mb": 0.1, "min_word_count": 2, "dimension": 100}


def dumps_of(args: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, Path]]:
    """The first dump, and the fresh ones."""
    xml, suffix = read(args.dump, args.megabytes), "".join(args.dump.suffixes[-2:])
    first = folder / f"first{suffix}"
    write(xml, first)
    fresh = {"nothing changed": folder / f"same{suffix}"}
    shutil.copy(first, fresh["nothing changed"])
    for share in args.shares:
        fresh[f"{share:.0%} of the pages changed"] = folder / f"fresh-{share:g}{suffix}"
        write(changed(xml, share), folder / f"fresh-{share:g}{suffix}")
    return first, fresh


def measure(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    kb = folder / "kb"
    first, fresh = dumps_of(args, folder)
    settings = [word for name, value in settings_of(args).items() for word in ("--set", f"corpus.{name}={value}")]
    vectors = ["--word-vectors", args.word_vectors] if args.word_vectors else []
    build = ["jobs/pipeline.py", "--kb", str(kb), "--dump", str(first), *vectors, *settings, "--until", "train_linker"]
    full, result = seconds(*build)
    rows = {"full build": full, "full build, without the linker": full - result["stages"]["train_linker"]["seconds"]}
    for name, dump in fresh.items():
        rows[f"refresh, {name}"], _ = seconds("jobs/refresh.py", "--kb", str(kb), "--margin", "1", "--dump", str(dump))
        switch(KnowledgeBase(kb), 1)
    return rows


# -- step by step


class Steps:
    """Processor seconds by step: passes of tasks, and what else some functions do."""

    def __init__(self) -> None:
        self.seconds = Counter[str]()
        tasks.run = self.run

    def run(self, stage: str, function: Callable[..., Any], items: Sequence[Any], *shared: Any, **_: Any) -> Any:
        """Stands for `tasks.run`."""
        with self.timed(stage):
            return Outcome([function(item, *shared) for item in items], 0, 0.0)

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Without what other steps take meanwhile."""
        start, others = time.process_time(), self.seconds.total()
        yield
        self.seconds[step] += time.process_time() - start - (self.seconds.total() - others)  # type: ignore[assignment]

    def watch(self, module: Any, name: str, step: str) -> None:
        function = getattr(module, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            with self.timed(step):
                return function(*arguments, **options)

        setattr(module, name, watched)


def measure_steps(args: argparse.Namespace, folder: Path) -> dict[str, Counter[str]]:
    kb, (first, fresh) = KnowledgeBase(folder / "kb", create=True), dumps_of(args, folder)
    given = {"dump": [str(first)], **({"word_vectors": args.word_vectors} if args.word_vectors else {})}
    _, sections = stages.resolve({"corpus": {**given, **settings_of(args)}})
    steps, found = Steps(), dict[str, Counter[str]]()
    steps.watch(trainer, "embed_entities", "embed: words, losses, joining")
    steps.watch(index, "write_name_index", "index of names")
    steps.watch(index, "write_link_vectors", "vectors of links")
    steps.watch(refresh, "_check", "scoring both versions")
    for name, dump in {"build": first, **fresh}.items():
        with steps.timed("other"):
            for stage in stages.STAGES[:3] if name == "build" else ():
                stages.run_stage(kb, stage, sections[stage.section])
            if name != "build":
                stages.REFRESH.make(kb, refresh.RefreshConfig(dump=(str(dump),), margin=1.0), NEW_RUN)
        found[name], steps.seconds = steps.seconds, Counter()
        if name != "build":
            switch(kb, 1)
    return found


def print_steps(args: argparse.Namespace, found: dict[str, Counter[str]]) -> None:
    rows = [(step, *(each[step] for each in found.values())) for step, most in found["build"].items() if most >= 0.1]
    rows += [(step, *(each[step] for each in found.values())) for step in ("carry", "scoring both versions")]
    print("processor seconds, all in one process")
    print(table(["step", *found], [*rows, ("all", *(each.total() for each in found.values()))]))
    write_json(args, claim="a fresh dump, by step", seconds=found)


if __name__ == "__main__":
    main()
