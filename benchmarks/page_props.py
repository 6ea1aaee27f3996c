"""How fast Wikidata ids are read from a page_props dump, as a ratio to unpacking it.

Each page of the made-up dump has four properties, one of them its id, as in a real one.

python benchmarks/page_props.py --million-pages 2
"""

import gzip
import random
import tempfile
import time
from pathlib import Path

from _harness import alternate, finish, parser_of, speeds

from deeped_ray.corpus.page_props import read_page_props
from deeped_ray.storage.location import Location

ROWS = (
    "({page},'defaultsort','Name {page}, Some (of many)',NULL),({page},'page_image_free','Map_of_{page}_2007.png',NULL),"
    "({page},'wikibase-shortdesc','a town in the district of {page}',NULL),({page},'wikibase_item','Q{number}',NULL)"
)
PAGES_PER_STATEMENT = 10_000


def write_dump(path: Path, num_pages: int) -> None:
    rng = random.Random(0)
    with gzip.open(path, "wt", compresslevel=6) as dump:
        dump.write("-- MySQL dump 10.19\nCREATE TABLE `page_props` (\n  `pp_page` int(10) unsigned NOT NULL\n);\n")
        for start in range(0, num_pages, PAGES_PER_STATEMENT):
            pages = range(start, start + PAGES_PER_STATEMENT)
            rows = ",".join(ROWS.format(page=page, number=rng.randrange(1, 10**8)) for page in pages)
            dump.write(f"INSERT INTO `page_props` VALUES {rows};\n")
        dump.write("-- Dump completed on 2026-01-01 00:00:00\n")


def unpack(path: Path) -> int:
    with gzip.open(path) as dump:
        return sum(len(block) for block in iter(lambda: dump.read(2**20), b""))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--million-pages", type=float, default=1.0, metavar="X", help="pages of the dump (default: 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "testwiki-page_props.sql.gz"
        write_dump(path, int(args.million_pages * 1e6))
        file = Location(path)
        num_ids = sum(len(pages) for pages, _ in read_page_props(file))
        size_mb, plain_mb = path.stat().st_size / 1e6, unpack(path) / 1e6
        times = alternate(
            lambda: sum(1 for _ in read_page_props(file)), lambda: unpack(path), rounds=3, clock=time.process_time
        )
    finish(
        args,
        claim=f"{num_ids:,} ids of {4 * num_ids:,} rows, {size_mb:.0f} MB, unpacked {plain_mb:.0f} MB",
        unit="ids",
        ours=speeds(num_ids, times[0]),
        baseline=speeds(num_ids, times[1]),
        baseline_name="unpacking alone",
    )


if __name__ == "__main__":
    main()
