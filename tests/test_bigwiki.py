"""`benchmarks/bigwiki.py` writes wikis that are larger than the real dump, and read like one."""

import bz2
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from deeped_ray.corpus.wikidump import DumpStats, RawPage, read_dump
from deeped_ray.corpus.wikitext import parse_page
from deeped_ray.mini import MINI_DUMP
from deeped_ray.storage.location import Location

REPOSITORY = Path(__file__).parent.parent
SIZE = 3


def run(*arguments: str) -> str:
    command = [sys.executable, "benchmarks/bigwiki.py", "--workers", "1", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mini encyclopedia as a multistream dump: a head, streams of 20 pages, an end."""
    xml = MINI_DUMP.read_text(encoding="utf-8")
    pages = re.findall(r"  <page>.*?</page>\n", xml, re.DOTALL)
    streams = ["".join(pages[start : start + 20]) for start in range(0, len(pages), 20)]
    file = tmp_path_factory.mktemp("real") / "mini-pages-articles-multistream.xml.bz2"
    file.write_bytes(
        b"".join(bz2.compress(each.encode()) for each in (xml[: xml.index("  <page>")], *streams, "</mediawiki>\n"))
    )
    return file


@pytest.fixture(scope="module")
def large(real: Path) -> Path:
    file = real.with_name("large-pages-articles-multistream.xml.bz2")
    run("--dump", str(real), "--size", str(SIZE), "--output", str(file))
    return file


def pages_of(file: Path) -> list[RawPage]:
    stats = DumpStats()
    pages = list(read_dump(Location(file), stats))
    assert not stats.damage
    return pages


def test_every_round_has_the_same_pages_under_titles_of_their_own(real: Path, large: Path) -> None:
    before, after = pages_of(real), pages_of(large)
    articles = [page for page in after if ":" not in page.title]
    assert len(after) >= SIZE * len([page for page in before if ":" not in page.title])
    assert len({page.title for page in articles}) == len({page.page_id for page in articles}) == len(articles)
    assert after[: len(before)] == before


def test_new_pages_are_as_long_and_as_linked_as_real_ones(real: Path, large: Path) -> None:
    before = [parse_page(page) for page in pages_of(real)]
    last = [parse_page(page) for page in pages_of(large) if page.page_id >= 2 * 10**8]
    by_origin = {page.page_id - 2 * 10**8: page for page in last}
    pairs = [(page, by_origin[page.page_id]) for page in before if page.page_id in by_origin]
    assert len(pairs) > 200
    assert all(len(old.text.split()) == len(new.text.split()) for old, new in pairs)
    num_links = [sum(len(page.links) for page in side) for side in zip(*pairs, strict=True)]
    assert num_links[1] == pytest.approx(num_links[0], rel=0.01)
    assert sum(old.text != new.text for old, new in pairs if old.text) > len(pairs) / 2


def test_redirects_of_a_round_lead_to_its_pages(large: Path) -> None:
    pages = pages_of(large)
    titles = {page.title for page in pages}
    redirects = [page for page in pages if page.redirect is not None]
    rounds = Counter(page.page_id // 10**8 for page in redirects if page.redirect in titles)
    assert rounds[1] == rounds[2] == rounds[0] > 0


def test_words_grow_by_heaps_law(real: Path, large: Path) -> None:
    printed = run("--dump", str(real), "--laws", "--of", str(large))
    rows = [line.split() for line in printed.splitlines() if line.startswith("words") and "rounds" in line]
    assert len(rows) == SIZE
    assert float(rows[-1][-1]) == pytest.approx(1, abs=0.05)  # distinct words over what the law says


def test_a_seed_gives_the_same_bytes_and_another_gives_others(real: Path, large: Path, tmp_path: Path) -> None:
    digests = []
    for seed in ("0", "1"):
        file = tmp_path / f"{seed}-pages-articles-multistream.xml.bz2"
        made = json.loads(run("--dump", str(real), "--size", str(SIZE), "--output", str(file), "--seed", seed))
        assert made["bytes"] == file.stat().st_size
        digests.append(hashlib.sha256(file.read_bytes()).hexdigest())
    assert digests[0] == hashlib.sha256(large.read_bytes()).hexdigest() != digests[1]


def test_a_larger_wiki_goes_on_after_a_smaller_one(real: Path, large: Path, tmp_path: Path) -> None:
    small, again = (tmp_path / f"{name}-pages-articles-multistream.xml.bz2" for name in ("small", "again"))
    run("--dump", str(real), "--size", "2", "--output", str(small))
    run("--dump", str(real), "--size", str(SIZE), "--after", str(small), "--output", str(again))
    assert again.read_bytes() == large.read_bytes()
    indexes = [Path(str(file).replace(".xml.bz2", "-index.txt.bz2")) for file in (again, large)]
    assert indexes[0].read_bytes() == indexes[1].read_bytes()
