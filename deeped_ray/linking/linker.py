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
from deeped_ray.linking.certainty import Certain, Certainty, Judged
from deeped_ray.linking.config import ModelConfig, ModelKind
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, Span
from deeped_ray.linking.encoding import EncodedDocument
from deeped_ray.linking.folded import Folding
from deeped_ray.linking.inputs import LinkerInputs, Window
from deeped_ray.linking.pace import Pause, no_pause, num_threads
from deeped_ray.linking.retrieval import SOURCES
from deeped_ray.linking.scoring import FittedModel, Scored, log_softmax
from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Mentions, Prediction
from deeped_ray.types import LinkerKind as LinkerKind

MENTION_COUNTS = "mention_counts.parquet"
NO_CANDIDATES = "no entity is known by this name"
NOTHING_FITS = "entities are known by this name, but none fits: the probability of none is {:.3f}"
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
        certainty: Certainty | None = None,
        detection: DetectionConfig | None = None,
        unit: float = 1.0,
    ) -> None:
        """Without `certainty`, probabilities are not calibrated, and none of these is never the answer.

        `unit` scales scores before the softmax: the margin of the ranking loss, or 1.
        """
        self.inputs = inputs
        self.unit = unit
        self.certainty = certainty
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
        part = kb.open("linker") if kind != "prior" or "linker" in kb else None
        if part is None or kind == "prior" or is_prior_alone(part):
            counts = part.path / MENTION_COUNTS if part and lists else None
            inputs = LinkerInputs(kb, ALL_BY_PRIOR, lists=CandidateLists(lists), counts=counts)
            certainty = _certainty(part, certainty_path(part.path, "prior")) if part else None
            return cls(inputs, None, certainty=certainty, detection=detection)
        # linkers that were trained before there were other sources have none of the two settings
        config = CandidateConfig(**{"sources": "prior", "evidence": "prior", **part.config["candidates"]})
        inputs = LinkerInputs(kb, config, lists=CandidateLists(lists), counts=part.path / MENTION_COUNTS)
        return cls._fitted(part, kind, inputs, detection=detection)

    @classmethod
    def open_seeds(cls, kb: KnowledgeBase, kind: LinkerKind, inputs: LinkerInputs) -> list["Linker"]:
        """One linker per seed of the training run, all with the same inputs; none for the prior, which has no seeds."""
        if kind == "prior":
            return []
        part = kb.open("linker")
        first, count = part.config["training"]["seed"], part.config["training"]["seeds"]
        return [cls._fitted(part, kind, inputs, seed=seed) for seed in range(first, first + count)]

    @classmethod
    def _fitted(
        cls,
        part: Part,
        kind: ModelKind,
        inputs: LinkerInputs,
        *,
        seed: int | None = None,
        detection: DetectionConfig | None = None,
    ) -> "Linker":
        """With the weights of a seed, or of the best one."""
        weights = weights_path(part.path, kind, seed=seed)
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
        certainty = _certainty(part, certainty_path(part.path, kind, seed=seed))
        return cls(inputs, model, certainty=certainty, detection=detection, unit=unit)

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
            for each in seen:
                pause()
                found = self._score(each[2], explain=explain)
                pause()
                yield each, found
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
        return self.model.score(encoded, self._folding, explain=explain)

    @functools.cached_property
    def _folding(self) -> Folding:
        assert self.model is not None
        return self.model.fold(self.inputs.entity_vectors, self.inputs.words.vectors)

    def _by_prior(self, document: Document, pause: Pause) -> list[Prediction]:
        firsts = self.inputs.first_candidates(document, pause=pause)
        if not firsts:
            return []
        judged = Judged.by_prior([document.surface(mention) for mention in document.mentions], firsts)
        certain = self._judge(judged)
        entities = np.array([c.entity_id for first in firsts for c in first], np.int64)
        named = zip(self.inputs.catalogue.titles(entities), self.inputs.catalogue.wikidata.of(entities), strict=True)
        answers = []
        for mention, first, *known in zip(document.mentions, firsts, *map(plain_numbers, certain), strict=True):
            candidates = tuple(
                self._candidate(title, entity, prior, 0.0, None, prior, share, "prior", wikidata)
                for (entity, prior, _), (title, wikidata), share in zip(first, named, known[0], strict=False)
            )
            answers.append(self._prediction(_place(document, mention), candidates, known[1]))
        return answers

    def _candidate(self, title: str, entity_id: int, *rest: Any) -> Candidate:
        catalogue = self.inputs.catalogue
        return Candidate(title, int(catalogue.page_ids[entity_id]), catalogue.url(title), *rest)

    def _judge(self, judged: Judged) -> Certain:
        if self.certainty is not None:
            return self.certainty.judge(judged)
        is_candidate = np.arange(judged.rho.shape[1]) < judged.num_candidates[:, None]
        shares = np.exp(log_softmax(judged.rho / np.float32(self.unit), is_candidate)) * is_candidate
        return Certain(shares, (judged.num_candidates == 0).astype(np.float32))

    def _prediction(
        self,
        span: tuple[int, int, str],
        candidates: tuple[Candidate, ...],
        none: float,
        attended: tuple[tuple[str, float], ...] = (),
        support: tuple[tuple[int, float], ...] = (),
    ) -> Prediction:
        """The best candidate is the answer, unless it is more likely that none is right."""
        reason = None
        if not candidates:
            reason = self._no_candidates
        elif none > candidates[0].probability:
            reason = NOTHING_FITS.format(none)
        return Prediction(*span, candidates, attended, support, reason, none)

    def _predictions(
        self, document: Document, window: Window, encoded: EncodedDocument, scored: Scored
    ) -> Iterator[tuple[int, Prediction]]:
        """One window's predictions, each with the position of its mention in the document."""
        titles = self.inputs.catalogue.titles(encoded.entities)
        page_ids = self.inputs.catalogue.page_ids[encoded.entities].tolist()
        urls = [self.inputs.catalogue.url(title) for title in titles]
        wikidata = self.inputs.catalogue.wikidata.of(encoded.entities)
        spans = [_place(document, document.mentions[place]) for place in window.mentions]
        certain = self._judge(Judged.by_model([surface for _, _, surface in spans], encoded, scored))
        columns = (encoded.prior, scored.psi, scored.belief, scored.rho, certain.candidates)
        plain = ([None] * len(encoded) if each is None else plain_numbers(each) for each in columns)
        none = plain_numbers(certain.none)
        rows = zip(encoded.candidates.tolist(), *plain, strict=True)
        nothing: list[tuple[Any, ...]] = [()] * len(encoded)
        attended = (
            _attended(encoded, scored.beta, self.inputs.words.take(encoded.words)) if scored.explains else nothing
        )
        support = nothing if scored.support is None else _supporters(scored.support, window)
        for i, (place, is_answered, row) in enumerate(zip(*window, rows, strict=True)):
            if not is_answered:
                continue
            num = int(encoded.num_candidates[i])
            if not num:
                yield place, self._prediction(spans[i], (), 1.0)
                continue
            sources = [SOURCES[source] for source in encoded.sources[i, :num].tolist()]
            entities, *scores = (each if each is not None else [None] * num for each in row)
            candidates = [
                Candidate(titles[e], page_ids[e], urls[e], *parts)
                for e, *parts in zip(
                    entities[:num], *scores, sources, map(wikidata.__getitem__, entities), strict=False
                )
            ]
            candidates.sort(key=lambda candidate: -candidate.score)
            yield place, self._prediction(spans[i], tuple(candidates), none[i], attended[i], support[i])


def plain_numbers(values: Floats) -> list[Any]:
    """As lists, since reading single numbers from arrays is slow; with as many digits as mean something."""
    rounded: list[Any] = values.astype(np.float64).round(DIGITS).tolist()
    return rounded


def _attended(encoded: EncodedDocument, beta: Floats, words: Sequence[str]) -> list[tuple[tuple[str, float], ...]]:
    """The distinct attended words of every mention, heaviest first. Weights of a repeated word are added up."""
    n = len(encoded)
    weights = np.zeros((n, len(words)), np.float32)
    mention, place = np.nonzero(beta)
    # a flat index: numpy takes five times as long with two
    np.add.at(weights.reshape(-1), mention * len(words) + encoded.context[mention, place], beta[mention, place])
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


def certainty_path(folder: Path, kind: LinkerKind, seed: int | None = None) -> Path:
    """What makes probabilities of the scores of these weights."""
    return (
        folder / f"{kind}.certainty.safetensors"
        if seed is None
        else folder / "seeds" / f"{kind}.{seed}.certainty.safetensors"
    )


def _certainty(part: Part, path: Path) -> Certainty | None:
    """None for linkers that were trained before there was any."""
    if not path.exists():
        return None
    part.check(path.relative_to(part.path).as_posix())
    return Certainty.load(path)


def is_prior_alone(part: Part) -> bool:
    """Whether there was too little to learn from, so that the linker has no model."""
    kinds: tuple[ModelKind, ...] = ("local", "global")
    return not any(weights_path(part.path, kind).name in part.record["files"] for kind in kinds)


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
