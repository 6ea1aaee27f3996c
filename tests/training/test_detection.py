"""The detector fitted to small wikis: the mini encyclopedia, and a German one, where every noun is capitalised."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.detection import score_spans
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import WEIGHTS, DetectionConfig, Detector, load_weights, open_columns
from deeped_ray.training.detection import Example, fit_detection, with_threshold
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.types import Document
from tests.conftest import page_xml, write_dump


def documents_of(annotated: list[Document]) -> TrainingDocuments:
    return TrainingDocuments(train=[], weights=[], dev=[], calibration=[], annotated=annotated)


def fitted(kb: KnowledgeBase, folder: Path, annotated: list[Document]) -> Detector:
    fit_detection(kb, documents_of(annotated), folder)
    return Detector(open_columns(kb), load_weights(folder / WEIGHTS), DetectionConfig())


def test_annotated_documents_teach_which_spans_are_names(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    detector = fitted(corpus_kb, tmp_path, read_dataset("mini:train", with_unlinked=True))
    documents = read_dataset("mini:dev", with_unlinked=True)
    scores = score_spans(documents, [set(detector.spans(document.text)) for document in documents])
    assert scores[-1].f1 > 0.9


def test_the_same_seed_gives_the_same_weights(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    documents = read_dataset("mini:train", with_unlinked=True)[:20]
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        fit_detection(corpus_kb, documents_of(documents), tmp_path / name)
    one, other = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("one", "other"))
    assert one == other


def test_a_threshold_is_chosen_for_the_best_f1(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    weights = load_weights(Path(open_columns.__code__.co_filename).parent / WEIGHTS)["names"]
    columns = np.tile(weights.mean, (2, 1))
    example = Example(np.array([[0, 1], [2, 3]]), columns, np.array([True, True]), np.ones(2, np.float32), 0)
    chosen, f1 = with_threshold(weights, [example])
    assert f1 == (1.0 if weights.scores(columns)[0] > chosen.threshold[0] else 0.0)


TOWNS = ("Köln", "Bonn", "Mainz", "Trier", "Kassel", "Jena", "Gera", "Ulm", "Aachen", "Worms")
NOUNS = ("Stadt", "Zug", "Brücke", "Kirche", "Straße", "Fluss", "Schule", "Markt")


def german_dump(folder: Path) -> Path:
    """Towns are linked, nouns never are."""
    pages = [page_xml(town, f"{town} ist eine Stadt.", page_id=number) for number, town in enumerate(TOWNS, 1)]
    for number, (noun, other, town) in enumerate(itertools.product(NOUNS, NOUNS[:4], TOWNS), 100):
        there = TOWNS[number % len(TOWNS)]
        text = f"Die {noun} in [[{town}]] ist alt. Der {other} fährt nach [[{there}]]. {noun} und {other} sind neu."
        pages.append(page_xml(f"Seite {number}", text, page_id=number))
    return write_dump(folder / "dump.xml", "".join(pages))


def test_german_nouns_are_no_names(local_ray_session: None, tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    build_corpus(kb, CorpusConfig(dump=(str(german_dump(tmp_path)),), min_word_count=1))
    detector = fitted(kb, tmp_path, [])
    text = "Bonn ist alt. Die Brücke in Trier ist neu. Der Markt fährt nach Jena."
    assert [text[start:end] for start, end in detector.spans(text)] == ["Bonn", "Trier", "Jena"]


@pytest.mark.parametrize("text", ["", "…", "und"])
def test_texts_without_spans_teach_nothing(corpus_kb: KnowledgeBase, tmp_path: Path, text: str) -> None:
    fit_detection(corpus_kb, documents_of([Document("1", text, ())]), tmp_path)
    assert load_weights(tmp_path / WEIGHTS).keys() == {"names", "all"}
