"""Detection with made-up counts and the packaged weights."""

import itertools
import sys
import time
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deeped_ray.corpus.occurrences import join_sequences, write_sequences
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.csr import write_csr
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.knowledge.strings import hash64, write_mapped, write_strings
from deeped_ray.linking import detection
from deeped_ray.linking.detection import PACKAGED, DetectionConfig, Detector, choose, load_weights, open_detector
from deeped_ray.linking.span_columns import Columns
from deeped_ray.linking.spans import SpanFinder
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

# mention -> pages in whose text it stands, pages where it is a link
COUNTS = {
    "New York": (900, 200),
    "York": (300, 20),
    "New York City": (500, 200),
    "City of London": (20, 5),
    "London": (900, 200),
    "U.S.": (6000, 120),
    "Bank of England": (100, 50),
    "England": (900, 200),
    "Queen's Park": (50, 20),
    "Málaga": (90, 30),
    "Yasser Arafat": (90, 50),
    "Mercury": (200, 60),
    "mercury": (90, 20),
    "Victory": (90, 1),
    "victory": (900, 1),
    "The": (9000, 1),
    "1996": (500, 300),
    "photosynthesis": (200, 150),
    "water": (900, 20),
    "東京": (300, 100),
    "京都": (300, 100),
    "ירושלים": (300, 100),
    "Москва": (300, 100),
    "Москвы": (200, 60),
}
# word -> how often the dump has it
WORDS = {
    **{"the": 90000, "victory": 2000, "Victory": 200, "came": 3000, "met": 2000, "late": 2000, "planet": 800},
    **{"London": 3000, "York": 3000, "New": 9000, "new": 9000, "City": 3000, "city": 5000, "England": 3000},
    **{"Bank": 900, "bank": 900, "Mercury": 900, "mercury": 400, "water": 4000, "says": 900, "Arafat": 200},
    **{"он": 900, "Он": 300, "café": 500, "Café": 90},
}


def columns_of(folder: Path) -> Columns:
    write_sequences(folder / "piece", list(COUNTS))
    join_sequences([folder / "piece"], [len(COUNTS)], folder)
    for name, counts in zip(("pages", "linked_pages"), zip(*COUNTS.values(), strict=True), strict=True):
        np.save(folder / f"mentions.{name}.npy", np.array(counts, dtype=np.int32))
    ones = np.ones(len(COUNTS))
    entities = np.arange(len(COUNTS), dtype=np.int32)
    write_csr(folder / "mentions", ones.astype(np.int64), entities=entities, priors=ones.astype(np.float32))
    links = pa.array([linked for _, linked in COUNTS.values()], pa.int64())
    write_mapped(folder / "entities.arrow", pa.table({"num_links": links, "is_person": pa.array(ones > 1)}))
    words = sorted(WORDS, key=hash64)
    write_strings(folder, "vocabulary", words)
    np.save(folder / "vocabulary.counts.npy", np.array([WORDS[word] for word in words]))
    part = Part("corpus", "0", Location(folder), {})
    return Columns(part, SpanFinder(part))


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    return columns_of(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def detector(columns: Columns) -> Detector:
    return Detector(columns, load_weights(PACKAGED), DetectionConfig())


def mentions(detector: Detector, text: str) -> list[str]:
    return [text[start:end] for start, end in detector.spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He flew from New York City to London.", ["New York City", "London"]),
        ("Mercury is the closest planet.", ["Mercury"]),
        ("Victory came late.", []),
        ("The end came late.", []),
        ("He lives in the U.S. and in London.", ["U.S.", "London"]),
        ("BANK OF ENGLAND SAYS NEW YORK CAME LATE", ["BANK OF ENGLAND", "NEW YORK"]),
        ("he flew from new york to london", ["new york", "london"]),
        ("They met at London's Queen's Park in England.", ["London", "Queen's Park", "England"]),
        ("他去了京都。", ["京都"]),
        ("הוא גר בירושלים.", ["ירושלים"]),
        ("Он живёт недалеко от Москвы.", ["Москвы"]),
    ],
)
def test_names_are_found_in_many_scripts_and_cases(detector: Detector, text: str, expected: list[str]) -> None:
    assert mentions(detector, text) == expected


def test_all_that_can_be_linked_is_more_than_names(detector: Detector) -> None:
    text = "He studied photosynthesis in London."
    assert mentions(detector, text) == ["London"]
    assert [text[slice(*span)] for span in detector.spans(text, mentions="all")] == ["photosynthesis", "London"]


@pytest.mark.parametrize("text", ["New\nYork", "It was New. York came", "New\n\nYork", "New? York"])
def test_no_name_spans_the_end_of_a_line_or_sentence(detector: Detector, text: str) -> None:
    assert "New York" not in [" ".join(found.split()) for found in mentions(detector, text)]


def test_a_long_text_is_read_in_pieces_and_gives_the_same_mentions(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Yasser Arafat came to New York City.\nThe Bank of England is in London. " * 30 + "Arafat left."
    whole = mentions(detector, text)
    monkeypatch.setattr(detection, "PIECE_CHARACTERS", 60)
    pauses: list[float] = []
    spans = detector.spans(text, lambda expected_s=0.0: pauses.append(expected_s))
    assert [text[start:end] for start, end in spans] == whole
    assert len(pauses) > 60


@pytest.mark.parametrize("text", ["", " ", " " * 30_000, "\u200b"])
def test_a_text_without_words_has_no_mentions(detector: Detector, text: str) -> None:
    assert detector.spans(text) == []


def test_places_are_those_of_the_text_as_it_was_given(detector: Detector) -> None:
    text = unicodedata.normalize("NFD", "Café in Málaga")
    (span,) = detector.spans(text)
    assert unicodedata.normalize("NFC", text[slice(*span)]) == "Málaga"
    assert detector.spans("\U0001f600 Málaga\u00a0Málaga") == [(2, 8), (9, 15)]


@pytest.mark.parametrize("text", ["", " \n ", "...", "a", "_", "\x00", "\ud800"])
def test_texts_without_names_have_no_mentions(detector: Detector, text: str) -> None:
    assert detector.spans(text) == []


def test_spans_are_in_order_and_apart(detector: Detector) -> None:
    spans = detector.spans("York, New York, Yasser Arafat in London; Arafat in the U.S. and York. " * 20)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert len(spans) > 60


def test_time_is_linear_in_the_text(detector: Detector) -> None:
    sentence = "Yasser Arafat met the Bank of England in New York City of London; Arafat left. "
    detector.spans(sentence * 100)

    def seconds(num_characters: int) -> float:
        text = sentence * (num_characters // len(sentence))
        start = time.process_time()
        detector.spans(text)
        return time.process_time() - start

    quarter = min(seconds(2**18) for _ in range(3))
    assert seconds(2**20) < 10 * quarter


def test_a_megabyte_without_spaces_is_no_trouble(detector: Detector) -> None:
    start = time.process_time()
    assert detector.spans("x" * 2**20) == []
    assert detector.spans("." * 2**18) == []
    assert time.process_time() - start < 30


def test_a_higher_threshold_finds_less(columns: Columns) -> None:
    text = "Mercury met Yasser Arafat in New York City, London, England and at Queen's Park."
    found = [
        len(Detector(columns, load_weights(PACKAGED), DetectionConfig(mention_threshold=share)).spans(text))
        for share in (0.01, 0.5, 1 - 1e-9)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] == 0


def test_the_best_spans_that_do_not_overlap_are_chosen() -> None:
    places = np.array([[0, 8], [4, 13], [9, 13], [0, 13], [14, 16]])
    scores = np.array([1.0, 2.5, 1.0, 2.2, -1.0], np.float32)
    assert choose(places, scores) == [(4, 13)]
    assert choose(places, np.array([1.5, 2.5, 1.5, 2.2, 0.5], np.float32)) == [(0, 8), (9, 13), (14, 16)]
    assert choose(places, -np.abs(scores)) == []


def test_thresholds_must_be_shares() -> None:
    with pytest.raises(DeepEdError, match=r"`mention_threshold` must lie between 0 and 1, not be 3\.0"):
        DetectionConfig(mention_threshold=3.0)


def test_weights_that_cannot_be_read_are_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "detection.safetensors").write_bytes(b"nothing")
    with pytest.raises(
        ArtifactError, match=r"Cannot read .*detection\.safetensors: .* Run jobs/train_linker\.py again"
    ):
        load_weights(tmp_path / "detection.safetensors")


def test_spacy_that_is_missing_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(DeepEdError, match=r"Run pip install 'deeped-ray\[spacy\]'"):
        open_detector(KnowledgeBase(tmp_path, create=True), DetectionConfig(detector="spacy"))


def test_a_spacy_pipeline_supplies_spans(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "London"}, {"label": "DATE", "pattern": "Monday"}])
    pipeline.to_disk(tmp_path / "pipeline")
    config = DetectionConfig(detector="spacy", spacy_model=str(tmp_path / "pipeline"))
    assert open_detector(KnowledgeBase(tmp_path, create=True), config).spans("On Monday in London") == [(13, 19)]
    with pytest.raises(DeepEdError, match="spaCy has no pipeline 'nowhere'"):
        open_detector(KnowledgeBase(tmp_path, create=True), DetectionConfig(detector="spacy", spacy_model="nowhere"))
