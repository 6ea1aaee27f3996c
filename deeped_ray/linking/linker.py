"""The linker: text in, entities with reasons out. Python, command line, evaluation and server all use it."""

import functools
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig, ModelKind
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, Span
from deeped_ray.linking.encoding import EncodedDocument
from deeped_ray.linking.inputs import LinkerInputs, Window
from deeped_ray.linking.pace import Pause, no_pause, num_threads
from deeped_ray.linking.retrieval import SOURCES
from deeped_ray.linking.scoring import LOWEST, FittedModel, Scored, log_softmax
from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Mentions, Prediction
from deeped_ray.types import LinkerKind as LinkerKind

MENTION_COUNTS = "mention_counts.parquet"
NO_CANDIDATES = "no entity is known by this name"
NOTHING_RESEMBLES = "no entity is known by this name, or by one that resembles it"
ALL_BY_PRIOR = CandidateConfig(sources="prior", evidence="prior", kept_by_prior=30, kept_by_context=0)
# with fewer documents, sharing them out costs more than it saves
LEAST_TO_SHARE = 16
DIGITS = 6
"""Of scores, weights and probabilities. Further ones are noise of the arithmetic."""
SUPPORTERS = 5
"""Other mentions that a prediction lists as support, at most."""
Floats = npt.NDArray[np.float32]
_Seen = tuple[int, Window, EncodedDocument]


class Linker:
    """Links mentions of documents with a trained model, or by prior alone."""

    def __init__(
        self,
        inputs: LinkerInputs,
        model: FittedModel | None,
        *,
        detection: DetectionConfig | None = None,
        unit: float = 1.0,
    ) -> None:
        """`unit` scales scores before the softmax: the margin of the ranking loss, or 1."""
        self.inputs = inputs
        self.unit = unit
        self._detection = detection or DetectionConfig()
        self._no_candidates = NOTHING_RESEMBLES if inputs.config.sources == "all" else NO_CANDIDATES
        self._num_threads = num_threads()
        self.model = model

    @classmethod
    def open(
        cls,
        kb: KnowledgeBase | str | Path,
        kind: LinkerKind = "global",
        *,
        lists: Sequence[str] = (),
        detection: DetectionConfig | None = None,
    ) -> "Linker":
        """The linker of a knowledge base.

        `lists` are external candidate lists, `ppr:FILE`. `detection` sets how mentions are found in raw text.
        """
        kb = kb if isinstance(kb, KnowledgeBase) else KnowledgeBase(kb)
        if kind == "prior":
            counts = kb.open("linker").path / MENTION_COUNTS if lists and "linker" in kb else None
            inputs = LinkerInputs(kb, ALL_BY_PRIOR, lists=CandidateLists(lists), counts=counts)
            return cls(inputs, None, detection=detection)
        part = kb.open("linker")
        # linkers that were trained before there were other sources have none of the two settings
        config = CandidateConfig(**{"sources": "prior", "evidence": "prior", **part.config["candidates"]})
        inputs = LinkerInputs(kb, config, lists=CandidateLists(lists), counts=part.path / MENTION_COUNTS)
        return cls._fitted(part, kind, inputs, weights_path(part.path, kind), detection=detection)

    @classmethod
    def open_seeds(cls, kb: KnowledgeBase, kind: LinkerKind, inputs: LinkerInputs) -> list["Linker"]:
        """One linker per seed of the training run, all with the same inputs; none for the prior, which has no seeds."""
        if kind == "prior":
            return []
        part = kb.open("linker")
        first, count = part.config["training"]["seed"], part.config["training"]["seeds"]
        paths = [weights_path(part.path, kind, seed=seed) for seed in range(first, first + count)]
        return [cls._fitted(part, kind, inputs, path) for path in paths]

    @classmethod
    def _fitted(
        cls,
        part: Part,
        kind: ModelKind,
        inputs: LinkerInputs,
        weights: Path,
        *,
        detection: DetectionConfig | None = None,
    ) -> "Linker":
        if not weights.exists():
            kb = part.location.parent.parent
            raise ArtifactError(
                f"The linker part of {kb} has no {kind} model. Run jobs/train_linker.py --kb {kb} --model both."
            )
        part.check(weights.relative_to(part.path).as_posix())
        dimension = inputs.words.vectors.shape[1]
        config = ModelConfig(**part.config["model"])
        model = FittedModel.load(weights, kind, config, dimension=dimension, num_evidence=inputs.num_evidence)
        training = part.config["training"]
        unit = training["margin"] if training["loss"] == "margin" else 1.0
        return cls(inputs, model, detection=detection, unit=unit)

    @functools.cached_property
    def detector(self) -> Detector | SpacyDetector:
        return self.inputs.open_detector(self._detection)

    def link(self, text: str, spans: Sequence[Span] | None = None) -> list[Prediction]:
        """One prediction per span, in the given order. Without spans, one per mention that is found in the text."""
        return self.link_batch([self.document(text, spans)])[0]

    def document(
        self,
        text: str,
        spans: Sequence[Span] | None = None,
        *,
        mentions: Mentions | None = None,
        pause: Pause = no_pause,
    ) -> Document:
        """The text with its mentions: the given spans, or those that are found in it."""
        if spans is None:
            spans = self.detector.spans(text, pause, mentions=mentions)
        else:
            check_spans(text, spans)
        return Document("", text, tuple(Mention(start, end) for start, end in spans))

    def link_batch(
        self, documents: Sequence[Document], *, explain: bool = True, pause: Pause = no_pause
    ) -> list[list[Prediction]]:
        """Predictions for all mentions of all documents. Without `explain` they lack attended words and support."""
        if self.model is None:
            return [self._by_prior(document, pause) for document in documents]
        answers: list[dict[int, Prediction]] = [{} for _ in documents]
        for (number, window, encoded), scored in self._scored(documents, explain=explain, pause=pause):
            answers[number].update(self._predictions(documents[number], window, encoded, scored))
            pause()
        return [[found[i] for i in range(len(found))] for found in answers]

    def _scored(self, documents: Sequence[Document], *, explain: bool, pause: Pause) -> Iterator[tuple[_Seen, Scored]]:
        """Windows with the model's output. Several are computed at once."""
        seen = (
            (number, *window)
            for number, document in enumerate(documents)
            for window in self.inputs.encode(document, pause=pause)
        )
        if len(documents) <= LEAST_TO_SHARE or self._num_threads == 1:
            yield from ((each, self._score(each[2], explain=explain)) for each in seen)
            return
        with ThreadPoolExecutor(self._num_threads) as threads:
            in_flight: deque[tuple[_Seen, Future[Scored]]] = deque()
            for each in seen:
                in_flight.append((each, threads.submit(self._score, each[2], explain=explain)))
                while len(in_flight) > LEAST_TO_SHARE:
                    first, scored = in_flight.popleft()
                    yield first, scored.result()
            for each, scored in in_flight:
                yield each, scored.result()

    def _score(self, encoded: EncodedDocument, *, explain: bool) -> Scored:
        assert self.model is not None
        entities, words = self.inputs.entity_vectors[encoded.entities], self.inputs.words.vectors[encoded.words]
        return self.model.score(encoded, entities, words, explain=explain)

    def _by_prior(self, document: Document, pause: Pause) -> list[Prediction]:
        catalogue = self.inputs.catalogue
        answers = []
        firsts = self.inputs.first_candidates(document, pause=pause)
        for mention, first in zip(document.mentions, firsts, strict=True):
            candidates = tuple(
                Candidate(
                    title=catalogue.title(entity_id),
                    page_id=int(catalogue.page_ids[entity_id]),
                    url=catalogue.url(catalogue.title(entity_id)),
                    prior=prior,
                    local=0.0,
                    coherence=None,
                    score=prior,
                    probability=prior,
                )
                for entity_id, prior, _ in first
            )
            reason = None if candidates else self._no_candidates
            answers.append(Prediction(*_place(document, mention), candidates, reason=reason))
        return answers

    def _predictions(
        self, document: Document, window: Window, encoded: EncodedDocument, scored: Scored
    ) -> Iterator[tuple[int, Prediction]]:
        """One window's predictions, each with the position of its mention in the document."""
        titles = self.inputs.catalogue.titles(encoded.entities)
        page_ids = self.inputs.catalogue.page_ids[encoded.entities].tolist()
        urls = [self.inputs.catalogue.url(title) for title in titles]
        is_candidate = scored.rho > LOWEST
        probabilities = np.exp(log_softmax(scored.rho / np.float32(self.unit), is_candidate))
        columns = (encoded.prior, scored.psi, scored.belief, scored.rho, probabilities)
        plain = ([None] * len(encoded) if each is None else plain_numbers(each) for each in columns)
        rows = zip(encoded.candidates.tolist(), *plain, strict=True)
        nothing: list[tuple[Any, ...]] = [()] * len(encoded)
        attended = (
            _attended(encoded, scored.beta, self.inputs.words.take(encoded.words)) if scored.explains else nothing
        )
        support = nothing if scored.support is None else _supporters(scored.support, window)
        for i, (place, is_answered, row) in enumerate(zip(*window, rows, strict=True)):
            if not is_answered:
                continue
            span, num = _place(document, document.mentions[place]), int(encoded.num_candidates[i])
            if not num:
                yield place, Prediction(*span, reason=self._no_candidates)
                continue
            sources = [SOURCES[source] for source in encoded.sources[i, :num].tolist()]
            entities, *scores = (each if each is not None else [None] * num for each in row)
            candidates = [
                Candidate(titles[e], page_ids[e], urls[e], *parts)
                for e, *parts in zip(entities[:num], *scores, sources, strict=False)
            ]
            candidates.sort(key=lambda candidate: -candidate.score)
            yield place, Prediction(*span, tuple(candidates), attended[i], support[i])


def plain_numbers(values: Floats) -> list[Any]:
    """As lists, since reading single numbers from arrays is slow; with as many digits as mean something."""
    rounded: list[Any] = values.astype(np.float64).round(DIGITS).tolist()
    return rounded


def _attended(encoded: EncodedDocument, beta: Floats, words: Sequence[str]) -> list[tuple[tuple[str, float], ...]]:
    """The distinct attended words of every mention, heaviest first. Weights of a repeated word are added up."""
    n = len(encoded)
    weights = np.zeros((n, len(words)), np.float32)
    mention, place = np.nonzero(beta)
    np.add.at(weights, (mention, encoded.context[mention, place]), beta[mention, place])
    mention, word = np.nonzero(weights)
    order = np.lexsort((word, -weights[mention, word], mention))
    ranked = [words[row] for row in word[order].tolist()]
    pairs = list(zip(ranked, plain_numbers(weights[mention, word][order]), strict=True))
    ends = np.searchsorted(mention, np.arange(n + 1)).tolist()
    return [tuple(pairs[start:end]) for start, end in itertools.pairwise(ends)]


def _supporters(support: Floats, window: Window) -> list[tuple[tuple[int, float], ...]]:
    """The strongest supporters of every mention, by their positions in the document."""
    n = len(window.mentions)
    others = support * (1 - np.eye(n, dtype=np.float32))
    strongest = np.argsort(-np.abs(others), axis=1, kind="stable")[:, :SUPPORTERS]
    weights = np.take_along_axis(others, strongest, axis=1)
    return [
        tuple((window.mentions[j], weight) for j, weight in zip(*row, strict=True) if weight)
        for row in zip(strongest.tolist(), plain_numbers(weights), strict=True)
    ]


def _place(document: Document, mention: Mention) -> tuple[int, int, str]:
    return mention.start, mention.end, document.surface(mention)


def weights_path(folder: Path, kind: ModelKind, *, seed: int | None = None) -> Path:
    """Weights of the best seed, or of a given one."""
    return folder / f"{kind}.safetensors" if seed is None else folder / "seeds" / f"{kind}.{seed}.safetensors"


def check_spans(text: str, spans: Sequence[Span]) -> None:
    """Refuse spans that are outside the text, empty or overlapping."""
    for start, end in spans:
        if 0 <= end <= start <= len(text):
            raise DeepEdError(f"Span {start}:{end} is empty. The end of a span is exclusive.")
        if not 0 <= start < end <= len(text):
            raise DeepEdError(f"Span {start}:{end} does not lie within the text, which has {len(text)} characters.")
    ordered = sorted(spans)
    for (start, end), (next_start, next_end) in itertools.pairwise(ordered):
        if next_start < end:
            raise DeepEdError(f"Spans {start}:{end} and {next_start}:{next_end} overlap.")
