"""The detector fitted to small wikis: the mini encyclopedia, and toy wikis in five languages."""

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.detection import score_spans
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import PACKAGED, WEIGHTS, DetectionConfig, Detector, load_weights, open_columns
from deeped_ray.training.detection import Example, fit_detection, with_threshold
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.types import Document
from tests.conftest import page_xml, write_dump


def documents_of(annotated: list[Document]) -> TrainingDocuments:
    return TrainingDocuments(train=[], weights=[], dev=[], calibration=[], annotated=annotated)


def fitted(kb: KnowledgeBase, folder: Path, annotated: list[Document]) -> Detector:
    save_file(fit_detection(kb, documents_of(annotated)).weights, folder / WEIGHTS)
    return Detector(open_columns(kb), load_weights(folder / WEIGHTS), DetectionConfig())


def test_annotated_documents_teach_which_spans_are_names(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    detector = fitted(corpus_kb, tmp_path, read_dataset("mini:train", with_unlinked=True))
    documents = read_dataset("mini:dev", with_unlinked=True)
    scores = score_spans(documents, [set(detector.spans(document.text)) for document in documents])
    assert scores[-1].f1 > 0.9


def test_the_same_seed_gives_the_same_weights(corpus_kb: KnowledgeBase) -> None:
    documents = read_dataset("mini:train", with_unlinked=True)[:20]
    one, other = (fit_detection(corpus_kb, documents_of(documents)).weights for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)


def test_a_threshold_is_chosen_for_the_best_f1() -> None:
    weights = load_weights(PACKAGED)["names"]
    columns = np.tile(weights.mean, (2, 1))
    example = Example(np.array([[0, 1], [2, 3]]), columns, np.array([True, True]), np.ones(2, np.float32), 0)
    chosen, f1 = with_threshold(weights, [example])
    assert f1 == (1.0 if weights.scores(columns)[0] > chosen.threshold[0] else 0.0)


class Toy(NamedTuple):
    """A language: towns, nouns, an article with two links, a new text, and the names in it."""

    towns: str
    nouns: str
    article: str
    text: str
    names: list[str]


TOYS = {
    "de": Toy(
        "Köln Bonn Mainz Trier Kassel Jena Gera Ulm",
        "Stadt Zug Brücke Kirche Straße Fluss Schule Markt",
        "Die {noun} in [[{town}]] ist alt. Der {other} fährt nach [[{there}]]. {noun} und {other} sind neu.",
        "Bonn ist alt. Die Brücke in Trier ist neu. Der Markt fährt nach Jena.",
        ["Bonn", "Trier", "Jena"],
    ),
    "ja": Toy(
        "東京 京都 大阪 神戸 ローマ パリ 札幌 福岡",
        "電車 学校 教会 市場 道路 駅前 工場 公園",
        "[[{town}]]の{noun}は古い。{other}は[[{there}]]に行く。{noun}と{other}は新しい。",
        "彼は東京の学校に行った。パリの市場は古い。",
        ["東京", "パリ"],
    ),
    "zh": Toy(
        "北京 上海 南京 广州 成都 西安 杭州 巴黎",
        "学校 教堂 市场 道路 工厂 公园 火车 河流",
        "[[{town}]]的{noun}很老。{other}去了[[{there}]]。{noun}和{other}是新的。",
        "他去了北京的学校。巴黎的市场很老。",
        ["北京", "巴黎"],
    ),
    "ru": Toy(
        "Москва Казань Тверь Псков Рязань Омск Томск Пермь",
        "школа церковь дорога река фабрика станция улица площадь",
        "Город [[{town}]] и {noun} рядом. Там {other}, дальше [[{there}]]. Эта {noun} и {other} новые.",
        "Город Псков и школа рядом. Там река, дальше Омск.",
        ["Псков", "Омск"],
    ),
    "he": Toy(
        "ירושלים חיפה נצרת טבריה אשדוד רמלה עכו צפת",
        "רכבת כנסייה שוק מפעל כביש תחנה ספרייה גינה",
        "ה{noun} ב[[{town}]] ישן. {other} נסע אל [[{there}]]. {noun} וגם {other} חדשים.",
        "הוא גר בירושלים. השוק נסע אל חיפה.",
        ["ירושלים", "חיפה"],
    ),
}


def dump_of(toy: Toy, folder: Path) -> Path:
    """Towns are linked, nouns never are."""
    towns, nouns = toy.towns.split(), toy.nouns.split()
    pages = [page_xml(town, f"{town}.", page_id=number) for number, town in enumerate(towns, 1)]
    for number, (noun, other, town) in enumerate(itertools.product(nouns, nouns[:5], towns), 100):
        there = towns[number // 3 % len(towns)]
        text = toy.article.format(noun=noun, other=other, town=town, there=there)
        pages.append(page_xml(f"{number}", text, page_id=number))
    return write_dump(folder / "dump.xml", "".join(pages))


@pytest.mark.parametrize("language", TOYS)
def test_links_teach_the_names_of_any_language(local_ray_session: None, tmp_path: Path, language: str) -> None:
    toy = TOYS[language]
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    build_corpus(kb, CorpusConfig(dump=(str(dump_of(toy, tmp_path)),), min_word_count=1))
    detector = fitted(kb, tmp_path, [])
    assert [toy.text[start:end] for start, end in detector.spans(toy.text)] == toy.names


@pytest.mark.parametrize("text", ["", "…", "und"])
def test_texts_without_spans_teach_nothing(corpus_kb: KnowledgeBase, tmp_path: Path, text: str) -> None:
    save_file(fit_detection(corpus_kb, documents_of([Document("1", text, ())])).weights, tmp_path / WEIGHTS)
    assert load_weights(tmp_path / WEIGHTS).keys() == {"names", "all"}
