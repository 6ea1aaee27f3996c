import itertools
import sys
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.corpus.occurrences import join_sequences, write_sequences
from deeped_ray.knowledge.parts import Part
from deeped_ray.linking import detection
from deeped_ray.linking.detection import DetectionConfig, Detector, open_detector
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

# mention -> pages in whose text it stands, pages where it is a link
COUNTS = {
    "New York": (100, 20),
    "York": (150, 5),
    "New York City": (50, 20),
    "City of London": (20, 5),
    "London": (100, 20),
    "U.S.": (6000, 120),
    "Bank of England": (10, 5),
    "England": (100, 20),
    "Queen's Park": (5, 2),
    "Málaga": (9, 3),
    "Yasser Arafat": (9, 5),
    "Boris Becker": (9, 5),
    "Huber": (9, 3),
    "Victory": (90, 9),
    "victory": (900, 1),
    "The": (9000, 1),
    "1996": (500, 300),
    "August 12": (50, 40),
    "photosynthesis": (20, 15),
    "water": (900, 20),
    "once": (1, 1),
    "Obscure": (900, 1),
    "San Marino": (0, 0),
}


def detector_of(folder: Path, counts: dict[str, tuple[int, int]], config: DetectionConfig | None = None) -> Detector:
    write_sequences(folder / "piece", list(counts))
    join_sequences([folder / "piece"], [len(counts)], folder)
    pages, linked = zip(*counts.values(), strict=True)
    np.save(folder / "mentions.pages.npy", np.array(pages, dtype=np.int32))
    np.save(folder / "mentions.linked_pages.npy", np.array(linked, dtype=np.int32))
    return Detector(Part("corpus", "0", Location(folder), {}), config or DetectionConfig())


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    return detector_of(tmp_path_factory.mktemp("corpus"), COUNTS)


def mentions(detector: Detector, text: str) -> list[str]:
    return [text[start:end] for start, end in detector.spans(text)]


def test_the_longest_of_overlapping_names_is_taken(detector: Detector) -> None:
    assert mentions(detector, "from New York City of London to New York or York") == [
        "New York City",
        "London",
        "New York",
        "York",
    ]


@pytest.mark.parametrize("text", ["New\nYork", "It was New. York came", "New\n\nYork", "New? York"])
def test_no_name_spans_the_end_of_a_line_or_sentence(detector: Detector, text: str) -> None:
    assert mentions(detector, text) == ["York"]


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


def test_full_stops_that_belong_to_a_name_are_part_of_its_span(detector: Detector) -> None:
    assert mentions(detector, "in the U.S. and in London.") == ["U.S.", "London"]


def test_headlines_are_read_in_usual_case(detector: Detector) -> None:
    text = "BANK OF ENGLAND SAYS VICTORY IN NEW YORK AND QUEEN'S PARK"
    assert mentions(detector, text) == ["BANK OF ENGLAND", "NEW YORK", "QUEEN'S PARK"]


def test_a_common_word_is_no_name_because_a_sentence_begins_with_it(detector: Detector) -> None:
    assert mentions(detector, "Victory came late. The end.") == []


def test_numbers_dates_and_stop_words_are_no_mentions(detector: Detector) -> None:
    assert mentions(detector, "The match of August 12 , 1996") == []


def test_lower_case_words_must_be_linked_mostly(detector: Detector) -> None:
    assert mentions(detector, "water and photosynthesis were once linked") == ["photosynthesis"]


def test_names_must_be_linked_often_enough_where_they_occur(detector: Detector, tmp_path: Path) -> None:
    assert mentions(detector, "near Obscure and San Marino") == ["San Marino"]
    eager = detector_of(tmp_path, COUNTS, DetectionConfig(min_link_probability=0.0))
    assert mentions(eager, "near Obscure and San Marino") == ["Obscure", "San Marino"]


def test_places_are_those_of_the_text_as_it_was_given(detector: Detector) -> None:
    text = unicodedata.normalize("NFD", "Café in Málaga")
    (span,) = detector.spans(text)
    assert unicodedata.normalize("NFC", text[slice(*span)]) == "Málaga"
    assert detector.spans("\U0001f600 Málaga\u00a0Málaga") == [(2, 8), (9, 15)]


def test_part_of_an_unknown_name_is_left_out(detector: Detector) -> None:
    assert mentions(detector, "he met Anke Huber and Huber in a London-Huber deal") == ["Huber"]


def test_the_last_word_of_a_longer_mention_is_one_too(detector: Detector, tmp_path: Path) -> None:
    text = "Yasser Arafat left; then Arafat and Leah Arafat spoke of Becker"
    assert mentions(detector, text) == ["Yasser Arafat", "Arafat"]
    strict = detector_of(tmp_path, COUNTS, DetectionConfig(short_names=False))
    assert mentions(strict, text) == ["Yasser Arafat"]


@pytest.mark.parametrize("text", ["", " \n ", "...", "a", "_", "\x00", "\ud800"])
def test_texts_without_names_have_no_mentions(detector: Detector, text: str) -> None:
    assert detector.spans(text) == []


def test_spans_are_in_order_and_apart(detector: Detector) -> None:
    spans = detector.spans("York, New York, Yasser Arafat in London; Arafat in the U.S. and York. " * 20)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert len(spans) > 100


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


def test_thresholds_must_be_shares() -> None:
    with pytest.raises(DeepEdError, match=r"`min_link_probability` must lie between 0 and 1, not be 3\.0"):
        DetectionConfig(min_link_probability=3.0)


def test_spacy_that_is_missing_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(DeepEdError, match=r"Run pip install 'deeped-ray\[spacy\]'"):
        open_detector(Part("corpus", "0", Location(tmp_path), {}), DetectionConfig(detector="spacy"))


def test_a_spacy_pipeline_supplies_spans(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "London"}, {"label": "DATE", "pattern": "Monday"}])
    pipeline.to_disk(tmp_path / "pipeline")
    config = DetectionConfig(detector="spacy", spacy_model=str(tmp_path / "pipeline"))
    assert open_detector(Part("corpus", "0", Location(tmp_path), {}), config).spans("On Monday in London") == [(13, 19)]
    with pytest.raises(DeepEdError, match="spaCy has no pipeline 'nowhere'"):
        open_detector(
            Part("corpus", "0", Location(tmp_path), {}), DetectionConfig(detector="spacy", spacy_model="nowhere")
        )
