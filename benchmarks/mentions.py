"""Claim: a table of 20 million mentions is looked up in under 20 microseconds a name, and opens in under a second.

python benchmarks/mentions.py            # 20 million; writes about 5 GB to a temporary folder, and removes it

The baseline is an SQLite table of mention -> candidates as JSON, as REL keeps them, with a twentieth of the mentions.
Names are made up and asked for in random order: as they stand, in capitals, in lower case, and unknown ones.
"""

import json
import random
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from _harness import alternate, finish, parser_of, speeds

from deeped_ray.corpus.priors import MentionTable, join, reduce
from deeped_ray.corpus.shuffle import Shuffle, Spilled
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running.progress import Progress
from deeped_ray.storage.location import Location

SYLLABLES = [
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "ke",
    "li",
    "mo",
    "nu",
    "pa",
    "re",
    "si",
    "to",
    "vu",
    "wa",
    "xe",
    "yi",
    "zo",
    "qua",
]
LOT = 500_000


def name_of(number: int) -> str:
    """A made-up name of two capitalised words; another number gives another name."""
    syllables = []
    for _ in range(6):
        number, place = divmod(number, len(SYLLABLES))
        syllables.append(SYLLABLES[place])
    return f"{''.join(syllables[:3]).capitalize()} {''.join(syllables[3:]).capitalize()}"


def write_table(folder: Path, num_mentions: int) -> None:
    """The mention table of ingest, by its own reducers, with three candidates a mention."""
    progress = Progress("write", "mentions", num_mentions)
    shuffle, spilled = Shuffle(Location(folder), 2**27), Spilled()
    for start in range(0, num_mentions, LOT):
        numbers = np.arange(start, min(start + LOT, num_mentions))
        names = [name_of(int(number)) for number in numbers]
        hashes = hashes_of(names)
        table = pa.table(
            {
                "hash": np.repeat(hashes, 3),
                "mention": pa.array(names).take(pa.array(np.repeat(np.arange(len(names)), 3))),
                "entity": (np.repeat(numbers, 3) * 7 + np.tile([0, 1, 2], len(names))) % 6_000_000,
                "source": np.zeros(3 * len(names), dtype=np.int8),
                "count": np.tile([5.0, 3.0, 1.0], len(names)),
            }
        )
        spilled |= shuffle.spill(f"{start:010d}", table)
        progress.advance(len(names))
    plan = shuffle.plan("piece", spilled)
    for combining in plan.combinings:
        shuffle.combine(combining)
    pieces = [folder / partition.name for partition in plan.partitions]
    progress = Progress("reduce", "partitions", len(pieces))
    for partition, piece in zip(plan.partitions, pieces, strict=True):
        (part,) = shuffle.slices(partition)
        reduce(part.rows, piece)
        progress.advance()
    join(pieces, folder)


def write_sqlite(path: Path, table: MentionTable, names: list[str]) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE mentions (mention TEXT PRIMARY KEY, candidates TEXT) WITHOUT ROWID")
    database.executemany(
        "INSERT OR IGNORE INTO mentions VALUES (?, ?)", ((name, json.dumps(table.candidates(name))) for name in names)
    )
    database.commit()
    return database


def each_of(names: list[str], look_up: Callable[[str], object]) -> Callable[[], None]:
    def look_all_up() -> None:
        for name in names:
            look_up(name)

    return look_all_up


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--mentions", type=int, default=20_000_000, metavar="N", help="size of the table")
    args = parser.parse_args()
    draw = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="deeped-mentions-") as name:
        folder = Path(name)
        write_table(folder, args.mentions)
        start = time.perf_counter()
        table = MentionTable(Part("corpus", "0", Location(folder), {}))
        opened_s = time.perf_counter() - start
        assert len(table) == args.mentions
        stored = [name_of(draw.randrange(args.mentions)) for _ in range(args.mentions // 20)]
        known = draw.sample(stored, min(50_000, len(stored)))
        database = write_sqlite(folder / "mentions.sqlite", table, stored)
        query = "SELECT candidates FROM mentions WHERE mention = ?"
        kinds = {
            "as it stands": known,
            "in capitals": [each.upper() for each in known],
            "in lower case": [each.lower() for each in known],
            "unknown": [f"{each}x" for each in known],
        }
        baseline, *times = alternate(
            each_of(known, lambda name: json.loads(database.execute(query, (name,)).fetchone()[0])),
            *(each_of(names, table.candidates) for names in kinds.values()),
            clock=time.process_time,
        )
        size = sum(path.stat().st_size for path in folder.glob("mentions.*") if path.suffix != ".sqlite")
        database.close()
    finish(
        args,
        claim=f"{args.mentions:,} mentions opened in {opened_s * 1000:.1f} ms, {size / 2**30:.2f} GiB mapped, one copy a node",
        unit="look-ups",
        ours=speeds(len(known), times[0]),
        baseline=speeds(len(known), baseline),
        baseline_name="SQLite, a twentieth of them",
        opened_s=opened_s,
        microseconds={kind: 1e6 * statistics.median(own) / len(known) for kind, own in zip(kinds, times, strict=True)},
        peak_gib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )
    for kind, own in zip(kinds, times, strict=True):
        least, median, most = (1e6 * each(own) / len(known) for each in (min, statistics.median, max))
        print(f"{kind:>14}: {median:.1f} microseconds ({least:.1f} to {most:.1f})")


if __name__ == "__main__":
    main()
