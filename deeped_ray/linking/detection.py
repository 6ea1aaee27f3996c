"""Finds mentions in raw text: every plausible span gets a score from a small model, and the best spans are kept.

    read       the spans of a piece of text that may be mentions (`spans`), and what speaks for each (`span_columns`)
    score      one hidden layer, one set of weights for each kind of mentions: names, and everything that can be linked
    choose     of the spans above the threshold, those that do not overlap and whose scores add up to most

`training.detection` fits the weights, which belong to the linker part. A knowledge base without a linker uses the weights
that come with the package. They were fitted to the links of an English sample.
"""

import bisect
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from deeped_ray.corpus.own_entities import claimed_names
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.text import Ints
from deeped_ray.types import DeepEdError, Mentions

# these import numba: half a second that look-ups do not need
if TYPE_CHECKING:
    from deeped_ray.linking.span_columns import Columns

Span = tuple[int, int]
Heard = list[tuple[int, Any]]
"""Pieces of a text: where each begins, and its `Units`."""
Floats = npt.NDArray[np.float32]
PIECE_CHARACTERS = 10_000
"""Read at once: some ten milliseconds of work."""
WEIGHTS = "detection.safetensors"
PACKAGED = Path(__file__).parent / WEIGHTS
_NO_NAMES = frozenset(("DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"))


@dataclass(frozen=True, kw_only=True)
class DetectionConfig:
    """How mentions are found in raw text."""

    detector: Annotated[
        Literal["kb", "spacy"],
        "who finds mentions: the knowledge base, or a spaCy pipeline (needs the extra `spacy`)",
    ] = "kb"
    mentions: Annotated[Mentions, "what is a mention: a name (as in news), or all that Wikipedia would link"] = "names"
    mention_threshold: Annotated[
        float | None, "probability that a span needs to be a mention; unless set, the one that fitted best in training"
    ] = None
    spacy_model: Annotated[str, "spaCy pipeline to load"] = "en_core_web_sm"

    def __post_init__(self) -> None:
        if self.mention_threshold is not None and not 0 < self.mention_threshold < 1:
            raise DeepEdError(f"`mention_threshold` must lie between 0 and 1, not be {self.mention_threshold}.")


class Weights(NamedTuple):
    """score = output . relu(hidden ((columns - mean) / spread) + hidden_bias) + output_bias, in log-odds."""

    mean: Floats
    spread: Floats
    hidden: Floats
    """[units, columns]"""
    hidden_bias: Floats
    output: Floats
    output_bias: Floats
    """[1]"""
    threshold: Floats
    """[1], in log-odds"""

    def scores(self, columns: Floats) -> Floats:
        from deeped_ray.linking import kernels

        active = np.empty((len(columns), len(self.output)), np.float32)
        kernels.dots(self.standard(columns), self.hidden, active)  # BLAS would start threads
        scores: Floats = np.maximum(active + self.hidden_bias, 0).dot(self.output) + self.output_bias
        return scores

    def standard(self, columns: Floats) -> Floats:
        """What is not known counts as the mean."""
        from deeped_ray.linking import column_kernels

        standard = np.empty(columns.shape, np.float32)
        column_kernels.standardise(columns, self.mean, self.spread, standard)
        return standard


def load_weights(path: Path) -> dict[Mentions, Weights]:
    """The weights for every kind of mentions."""
    try:
        found = load_file(path)
        return {kind: Weights(*(found[f"{kind}.{name}"] for name in Weights._fields)) for kind in get_args(Mentions)}
    except (OSError, SafetensorError, KeyError) as error:
        raise ArtifactError(f"Cannot read {path}: {error}. Run jobs/train_linker.py again.") from error


class Detector:
    """Finds mentions by the mention table of a knowledge base, and a model."""

    def __init__(self, columns: "Columns", weights: dict[Mentions, Weights], config: DetectionConfig) -> None:
        self.config = config
        self._columns, self._weights = columns, weights

    def spans(
        self,
        text: str,
        pause: Pause = no_pause,
        *,
        mentions: Mentions | None = None,
        heard: Heard | None = None,
    ) -> list[Span]:
        """Start and end of every mention, in order. Mentions do not overlap.

        What was read of the text is added to `heard`, for who looks for more in it.
        """
        weights = self._weights[mentions or self.config.mentions]
        set_by_user = self.config.mention_threshold
        threshold = float(weights.threshold[0]) if set_by_user is None else logit(set_by_user)
        found = []
        for start, places, columns in scored_pieces(text, self._columns, pause, heard):
            pause()
            scores = weights.scores(columns) - threshold
            pause()
            chosen = choose(places, scores)
            found += [(start + first, start + end) for first, end in chosen]
            pause()
        return found


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def scored_pieces(
    text: str, columns: "Columns", pause: Pause = no_pause, heard: Heard | None = None
) -> Iterator[tuple[int, Ints, Floats]]:
    """Of every piece of a text: where it starts, and the places and columns of its spans."""
    from deeped_ray.linking.span_columns import tell

    read = []
    for start, end in pieces(text):
        piece = columns.finder.read(text[start:end])
        if heard is not None:
            heard.append((start, piece.units))
        if len(piece.found.first):
            read.append((start, piece))
        pause()
    # the pieces tell about each other: a name may be spelled out in one and stand alone in another
    for (start, piece), told in zip(read, tell([each for _, each in read], pause), strict=True):
        yield start, piece.places, columns.of(piece, told, pause)


def choose(places: Ints, scores: Floats) -> list[Span]:
    """The spans that do not overlap and whose scores add up to most, in order; those below 0 never do (weighted intervals)."""
    is_kept = scores > 0
    places, scores = places[is_kept], scores[is_kept]
    order = np.argsort(places[:, 1], kind="stable")
    starts, ends = places[order].T.tolist()
    before = [bisect.bisect_right(ends, start) for start in starts]
    best, taken = [0.0], list[bool]()
    for place, score in zip(before, scores[order].tolist(), strict=True):
        total = best[place] + score
        taken.append(total > best[-1])
        best.append(max(total, best[-1]))
    chosen, number = [], len(ends)
    while number:
        is_taken = taken[number - 1]
        if is_taken:
            chosen.append((starts[number - 1], ends[number - 1]))
        number = before[number - 1] if is_taken else number - 1
    return chosen[::-1]


def pieces(text: str) -> Iterator[Span]:
    """Cut a long text into pieces, at line ends if there are some, else between words. No name spans two lines."""
    start, size = 0, PIECE_CHARACTERS
    while len(text) - start > size:
        cuts = (text.rfind(mark, start, start + size) + 1 for mark in ("\n", ". ", " "))
        end = next((cut for cut in cuts if cut > start), start + size)
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


class SpacyDetector:
    """Uses the named entities of a spaCy pipeline as mentions."""

    def __init__(self, config: DetectionConfig) -> None:
        self.config = config
        self._pipeline = _load_pipeline(config.spacy_model)

    def spans(
        self,
        text: str,
        _: Pause = no_pause,
        *,
        mentions: Mentions | None = None,  # noqa: ARG002
        heard: Heard | None = None,
    ) -> list[Span]:
        """What the pipeline finds, whatever `mentions` asks for."""
        if heard is not None:
            from deeped_ray.linking.units import read_units

            heard.append((0, read_units(text)))
        return [
            (entity.start_char, entity.end_char)
            for entity in self._pipeline(text).ents
            if entity.label_ not in _NO_NAMES
        ]


def _load_pipeline(model: str) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise DeepEdError(
            "`detector` spacy needs spaCy, which is not installed. Run pip install 'deeped-ray[spacy]'."
        ) from error
    try:
        return spacy.load(model)
    except OSError as error:
        raise DeepEdError(f"spaCy has no pipeline {model!r}. Run python -m spacy download {model}.") from error


def open_detector(kb: KnowledgeBase, config: DetectionConfig) -> Detector | SpacyDetector:
    if config.detector == "spacy":
        return SpacyDetector(config)
    linker = _current(kb, "linker")
    fitted = linker.path / WEIGHTS if linker else PACKAGED
    detector = Detector(open_columns(kb), load_weights(fitted if fitted.exists() else PACKAGED), config)
    names = claimed_names(kb.open("corpus"))
    if not names:
        return detector
    from deeped_ray.linking.own_names import NamesDetector  # which is a Detector

    return NamesDetector(detector, names)


def open_columns(kb: KnowledgeBase) -> "Columns":
    """Without vectors, nothing is known of how well candidates fit: that can be looked at before they are made."""
    from deeped_ray.linking.span_columns import Columns, Vectors
    from deeped_ray.linking.spans import SpanFinder

    corpus, words, vectors = kb.open("corpus"), _current(kb, "words"), _current(kb, "vectors")
    finder = SpanFinder(corpus)
    known = Vectors(words, vectors, num_corpus_words=finder.num_words) if words and vectors else None
    return Columns(corpus, finder, known)


def _current(kb: KnowledgeBase, name: str) -> Part | None:
    with contextlib.suppress(ArtifactError):  # missing, or made from an older corpus
        return kb.open(name)
    return None
