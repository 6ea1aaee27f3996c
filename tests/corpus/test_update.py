"""A fresh dump gives the same bytes whether only what has changed is counted, or everything."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deeped_ray.corpus import passes, updating
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.pages import key_of, page_shards
from deeped_ray.corpus.update import Difference
from deeped_ray.corpus.updating import Before, Update
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.versions import draft_of
from deeped_ray.mini import MINI_DUMP
from deeped_ray.types import Link, Page
from tests.conftest import copy_of, page_xml, write_dump

PAGE = re.compile(r"  <page>.*?</page>\n", re.DOTALL)
CONFIG = CorpusConfig(min_word_count=2, shard_mb=0.02, partitions=3, min_links_without_page=1, teaching_links=500)


def reading(dump: Path) -> CorpusConfig:
    return replace(CONFIG, dump=(str(dump),))


def changed_dump(target: Path, *, seed: int = 0, share: float = 0.05) -> Path:
    """The mini encyclopedia with some pages changed, some gone, some new, and a redirect that leads elsewhere."""
    text = MINI_DUMP.read_text()
    pages = PAGE.findall(text)
    chance, fresh = random.Random(seed), []
    for page in pages:
        if chance.random() < share:
            kind = chance.choice(("gone", "changed", "renamed"))
            if kind == "changed":
                page = page.replace("</text>", " A [[Zanzibar Club|club]] near [[Montreal]] was new.</text>")
            elif kind == "renamed":
                page = re.sub(r"<title>(.*?)</title>", r"<title>New \1</title>", page)
            else:
                continue
        fresh.append(page)
    fresh.append("  " + page_xml("Zanzibar Club", "A [[Toronto]] club.", page_id=999_001) + "\n")
    head, tail = text.partition(pages[0])[0], text.rpartition(pages[-1])[2]
    target.write_text(head + "".join(fresh) + tail)
    return target


@pytest.fixture(scope="module")
def before(local_ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    kb = KnowledgeBase(tmp_path_factory.mktemp("update") / "kb", create=True)
    build_corpus(kb, CONFIG)
    return kb


def ids(kb: KnowledgeBase) -> list[str]:
    return [kb.open(part).id for part in ("pages", "corpus")]


def files_that_differ(one: KnowledgeBase, other: KnowledgeBase) -> set[str]:
    parts = [(one.open(part).record["files"], other.open(part).record["files"]) for part in ("pages", "corpus")]
    return {name for mine, theirs in parts for name in mine | theirs if mine.get(name) != theirs.get(name)}


@pytest.mark.parametrize("share", [0.03, 0.2])
def test_counting_what_has_changed_gives_the_bytes_of_counting_everything(
    before: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    dump = changed_dump(tmp_path / "fresh.xml", share=share)
    config = reading(dump)
    updated, counted = (copy_of(before, tmp_path / name) for name in ("updated", "counted"))
    draft = draft_of(updated)
    build_corpus(draft, config, earlier=updated)
    assert ids(draft) != ids(before)
    monkeypatch.setattr(Difference, "between", lambda *_: None)
    full = draft_of(counted)
    build_corpus(full, config, earlier=counted)
    assert files_that_differ(draft, full) == set()


def test_a_dump_with_other_bytes_and_the_same_pages_changes_nothing(before: KnowledgeBase, tmp_path: Path) -> None:
    dump = tmp_path / "other.xml"
    dump.write_text(MINI_DUMP.read_text().replace("</page>", "</page>\n<!-- -->"))
    kb = copy_of(before, tmp_path / "kb")
    draft = draft_of(kb)
    build_corpus(draft, reading(dump), earlier=kb)
    assert draft.open("pages").id != kb.open("pages").id
    assert draft.open("corpus").id == kb.open("corpus").id


def test_the_same_dump_under_another_name_is_not_parsed(
    before: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = tmp_path / "next.xml"
    dump.write_bytes(MINI_DUMP.read_bytes())
    kb = copy_of(before, tmp_path / "kb")
    draft = draft_of(kb)
    monkeypatch.setattr(passes, "parse_shard", None)
    build_corpus(draft, reading(dump), earlier=kb)
    assert ids(draft) == ids(kb)
    assert draft.open("pages").config["dumps"][0]["file"] == "next.xml"


def test_vocabulary_and_teaching_articles_stay(before: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(before, tmp_path / "kb")
    draft = draft_of(kb)
    dump = changed_dump(tmp_path / "fresh.xml")
    build_corpus(draft, reading(dump), earlier=kb)
    files, same = draft.open("corpus").record["files"], before.open("corpus").record["files"]
    for name in ("vocabulary.arrow", "vocabulary.counts.npy", "teaching.json"):
        assert files[name] == same[name]
    assert files["teaching.parquet"] != same["teaching.parquet"]


def test_only_pages_that_have_changed_or_link_to_what_has_are_counted(
    before: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Update] = []
    of: Callable[..., Update] = Update.of

    def watched(*args: object) -> Update:
        seen.append(of(*args))
        return seen[-1]

    monkeypatch.setattr(updating.Update, "of", watched)
    dump = tmp_path / "fresh.xml"
    first = PAGE.findall(MINI_DUMP.read_text())[5]
    dump.write_text(MINI_DUMP.read_text().replace(first, first.replace("</text>", " More.</text>")))
    kb = copy_of(before, tmp_path / "kb")
    draft = draft_of(kb)
    build_corpus(draft, reading(dump), earlier=kb)
    (update,) = seen
    assert [len(piece.keys) for piece in update.pieces if piece.keys is not None] == [1, 1]


def test_a_page_twice_in_a_dump_is_told_by_counting_everything(local_ray_session: None, tmp_path: Path) -> None:
    page = page_xml("A", "Some [[A]] text.")
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    for number, pages in enumerate((page, page + page)):
        dump = write_dump(tmp_path / f"{number}.xml", pages)
        target = draft_of(kb) if number else kb
        build_corpus(target, replace(reading(dump), min_word_count=1), earlier=kb if number else None)
    assert Difference.between(page_shards(kb.open("pages")), page_shards(target.open("pages"))) is None
    assert target.open("pages").summary()["pages"] == 2


def test_a_knowledge_base_of_an_earlier_program_is_counted_afresh(before: KnowledgeBase, tmp_path: Path) -> None:
    kb = copy_of(before, tmp_path / "kb")
    manifest = kb.manifest()
    manifest["parts"]["corpus"]["deeped_ray"] = "0.0.1"
    kb.write_manifest(manifest)
    assert Before.of(before)
    assert Before.of(kb) is None


@pytest.mark.parametrize(
    "other",
    [
        {"text": "An apple"},
        {"title": "B"},
        {"page_id": 2},
        {"redirect": "C"},
        {"is_person": True},
        {"is_disambiguation": True},
        {"links": (Link(0, 1, "D"),)},
    ],
)
def test_the_key_of_a_page_depends_on_all_that_is_known_of_it(other: dict[str, object]) -> None:
    page = Page(1, "A", "Apple", (Link(0, 1, "B"),))
    assert key_of(page) == key_of(Page(1, "A", "Apple", (Link(0, 1, "B"),)))
    assert key_of(page) != key_of(replace(page, **other))  # type: ignore[arg-type]
