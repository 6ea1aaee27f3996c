"""What a fresh dump costs, as a share of a full build from the same dump in the same run.

A knowledge base is built from a dump: corpus, word vectors or those given, entity vectors, index, linker. Then it is
refreshed from the same dump under another name, and from dumps in which 1% and 10% of the pages were changed, all over the
dump. Every command is a process of its own, with a Ray of its own. The linker is kept, and both versions are scored.

python benchmarks/refresh.py                                                              # the mini encyclopedia
python benchmarks/refresh.py --dump wiki.xml.bz2 --megabytes 24 --word-vectors vectors.bin.gz
"""

import argparse
import bz2
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _harness import parser_of, write_json

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.versions import switch
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running.console import table

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
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.1], help="of the pages that change")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="deeped-refresh-"))
    try:
        rows = measure(args, folder)
    finally:
        shutil.rmtree(folder)
    full = rows["full build"]
    print("a fresh dump, as a share of a full build")
    print(table(["what", "seconds", "share"], [(name, each, each / full) for name, each in rows.items()]))
    write_json(args, claim="a fresh dump, as a share of a full build", seconds=rows)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    xml, suffix = read(args.dump, args.megabytes), "".join(args.dump.suffixes[-2:])
    kb, first = folder / "kb", folder / f"first{suffix}"
    write(xml, first)
    settings = ["--set", "corpus.shard_mb=0.1"] if args.dump == MINI_DUMP else []
    if args.dump == MINI_DUMP:
        settings += ["--set", "corpus.min_word_count=2", "--set", "corpus.dimension=100"]
    vectors = ["--word-vectors", args.word_vectors] if args.word_vectors else []
    build = ["jobs/pipeline.py", "--kb", str(kb), "--dump", str(first), *vectors, *settings, "--until", "train_linker"]
    full, result = seconds(*build)
    rows = {"full build": full, "full build, without the linker": full - result["stages"]["train_linker"]["seconds"]}
    refresh = ["jobs/refresh.py", "--kb", str(kb), "--margin", "1", "--dump"]
    same = folder / f"same{suffix}"
    shutil.copy(first, same)
    rows["refresh, nothing changed"], _ = seconds(*refresh, str(same))
    for share in args.shares:
        fresh = folder / f"fresh-{share:g}{suffix}"
        write(changed(xml, share), fresh)
        rows[f"refresh, {share:.0%} of the pages changed"], _ = seconds(*refresh, str(fresh))
        switch(KnowledgeBase(kb), 1)
    return rows


if __name__ == "__main__":
    main()
