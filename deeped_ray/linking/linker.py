"""The linker: text in, entities with reasons out. Python, command line, evaluation and server all use it."""

import functools
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from deeped_ray.embeddings.name_search import NameSearch
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.linking.batching import EncodedDocument, similar_sizes
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, Span
from deeped_ray.linking.inputs import LinkerInputs, Window
from deeped_ray.linking.model import LinkerModel, ModelConfig, ModelKind, Scores
from deeped_ray.linking.threads import document_threads
from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Prediction
from deeped_ray.types import LinkerKind as LinkerKind

MENTION_COUNTS = "mention_counts.parquet"
NO_CANDIDATES = "no entity is known by this name"
NOTHING_RESEMBLES = "no entity is known by this name, or by one that resembles it"
ALL_BY_PRIOR = CandidateConfig(kept_by_prior=30, kept_by_context=0)
# documents per batch, and batches that are sorted by size together
PER_BATCH, BATCHES_AT_ONCE = 16, 8
SUPPORTERS = 5
"""Other mentions that a prediction lists as support, at most."""
Floats = npt.NDArray[np.float32]
_Seen = tuple[int, Window, EncodedDocument]


class Linker:
    """Links mentions of documents with a trained model, or by prior alone."""

    def __init__(
        self,
        inputs: LinkerInputs,
        model: LinkerModel | None,
        *,
        detection: DetectionConfig | None = None,
        unit: float = 1.0,
    ) -> None:
        """`unit` scales scores before the softmax: the margin of the ranking loss, or 1."""
        self.inputs = inputs
        self.unit = unit
        self._detection = detection or DetectionConfig()
        self._no_candidates = NOTHING_RESEMBLES if inputs.names else NO_CANDIDATES
        self._num_threads = torch.get_num_threads()
        self.model = model.eval() if model else None

    @classmethod
    def open(
        cls,
        kb: KnowledgeBase | str | Path,
        kind: LinkerKind = "global",
        *,
        lists: Sequence[str] = (),
        resembling: bool = True,
        detection: DetectionConfig | None = None,
    ) -> "Linker":
        """The linker of a knowledge base.

        `lists` are external candidate lists, `ppr:FILE`. With `resembling`, an unknown name gets the entities whose names
        resemble it. `detection` sets how mentions are found in raw text.
        """
        kb = kb if isinstance(kb, KnowledgeBase) else KnowledgeBase(kb)
        if kind == "prior":
            counts = kb.open("linker").path / MENTION_COUNTS if lists and "linker" in kb else None
            inputs = LinkerInputs(kb, ALL_BY_PRIOR, lists=CandidateLists(lists), counts=counts)
            return cls(inputs, None, detection=detection)
        part = kb.open("linker")
        config = CandidateConfig(**part.config["candidates"])
        names = NameSearch.open(kb) if resembling and "index" in kb else None
        counts = part.path / MENTION_COUNTS
        inputs = LinkerInputs(kb, config, lists=CandidateLists(lists), counts=counts, names=names)
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
        model = load_model(weights, kind, ModelConfig(**part.config["model"]), dimension=dimension)
        training = part.config["training"]
        unit = training["margin"] if training["loss"] == "margin" else 1.0
        return cls(inputs, model, detection=detection, unit=unit)

    @functools.cached_property
    def detector(self) -> Detector | SpacyDetector:
        return self.inputs.open_detector(self._detection)

    def link(self, text: str, spans: Sequence[Span] | None = None) -> list[Prediction]:
        """One prediction per span, in the given order. Without spans, one per mention that is found in the text."""
        return self.link_batch([self.document(text, spans)])[0]

    def document(self, text: str, spans: Sequence[Span] | None = None) -> Document:
        """The text with its mentions: the given spans, or those that are found in it."""
        if spans is None:
            spans = self.detector.spans(text)
        else:
            check_spans(text, spans)
        return Document("", text, tuple(Mention(start, end) for start, end in spans))

    def link_batch(self, documents: Sequence[Document], *, explain: bool = True) -> list[list[Prediction]]:
        """Predictions for all mentions of all documents. Without `explain` they lack attended words and support."""
        if self.model is None:
            return [self._by_prior(document) for document in documents]
        answers: list[dict[int, Prediction]] = [{} for _ in documents]
        for batch, scores in self._scored(documents, explain=explain):
            for row, (number, window, encoded) in enumerate(batch):
                answers[number].update(self._explain(documents[number], window, encoded, scores, row))
        return [[found[i] for i in range(len(found))] for found in answers]

    def _scored(self, documents: Sequence[Document], *, explain: bool) -> Iterator[tuple[list[_Seen], "_Lists"]]:
        """Batches with the model's output. Several are computed at once."""
        if len(documents) <= PER_BATCH or self._num_threads == 1:  # too little work to share
            for batch in self._batches(documents):
                yield batch, self._score(batch, explain=explain)
            return
        with document_threads(self._num_threads) as threads:
            in_flight: deque[tuple[list[_Seen], Future[_Lists]]] = deque()
            for batch in self._batches(documents):
                in_flight.append((batch, threads.submit(self._score, batch, explain=explain)))
                while len(in_flight) > 2 * self._num_threads:
                    first, scores = in_flight.popleft()
                    yield first, scores.result()
            for batch, scores in in_flight:
                yield batch, scores.result()

    def _batches(self, documents: Sequence[Document]) -> Iterator[list[_Seen]]:
        """Windows with the number of their document, in batches of similar size."""
        for start in range(0, len(documents), BATCHES_AT_ONCE * PER_BATCH):
            chunk = range(start, min(start + BATCHES_AT_ONCE * PER_BATCH, len(documents)))
            seen = [(number, *window) for number in chunk for window in self.inputs.encode(documents[number])]
            for places in similar_sizes([encoded for _, _, encoded in seen], per_batch=PER_BATCH):
                yield [seen[place] for place in places]

    @torch.inference_mode()
    def _score(self, seen: Sequence[_Seen], *, explain: bool) -> "_Lists":
        assert self.model is not None
        batch = self.inputs.collate([encoded for _, _, encoded in seen])
        scores: Scores = self.model(batch)
        is_global = self.model.kind == "global"
        support = self.model.mutual_support(scores.rho, batch) if explain and is_global else None
        return _Lists(scores, support, self.unit, explain=explain)

    def _by_prior(self, document: Document) -> list[Prediction]:
        catalogue = self.inputs.catalogue
        answers = []
        for mention, first in zip(document.mentions, self.inputs.first_candidates(document), strict=True):
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

    def _explain(
        self, document: Document, window: Window, encoded: EncodedDocument, scores: "_Lists", row: int
    ) -> Iterator[tuple[int, Prediction]]:
        """One document's rows of the model's output as predictions, each with the position of its mention."""
        titles = self.inputs.catalogue.titles(encoded.entities)
        page_ids = self.inputs.catalogue.page_ids[encoded.entities].tolist()
        words = self.inputs.words.take(encoded.words) if scores.beta is not None else []
        entities, priors = encoded.candidates.tolist(), encoded.prior.tolist()
        urls = [self.inputs.catalogue.url(title) for title in titles]
        nothing: list[tuple[Any, ...]] = [()] * len(encoded)
        attended = nothing if scores.beta is None else _attended(encoded, scores.beta[row], words)
        support = nothing if scores.support is None else _supporters(scores.support[row], window)
        for i, (place, is_answered) in enumerate(zip(*window, strict=True)):
            if not is_answered:
                continue
            num = int(encoded.num_candidates[i])
            span = _place(document, document.mentions[place])
            if not num:
                yield place, Prediction(*span, reason=self._no_candidates)
                continue
            beliefs = scores.belief[row][i] if scores.belief else [None] * num
            parts = scores.rho[row][i], scores.psi[row][i], beliefs, scores.probability[row][i]
            candidates = [
                Candidate(titles[e], page_ids[e], urls[e], prior, psi, belief, rho, probability)
                for e, prior, rho, psi, belief, probability in zip(entities[i][:num], priors[i], *parts, strict=False)
            ]
            candidates.sort(key=lambda candidate: -candidate.score)
            yield place, Prediction(*span, tuple(candidates), attended[i], support[i])


class _Lists:
    """The model's output as plain lists: reading single numbers from tensors is slow."""

    def __init__(self, scores: Scores, support: Tensor | None, unit: float, *, explain: bool) -> None:
        self.rho = scores.rho.tolist()
        self.psi = scores.psi.tolist()
        self.beta = scores.beta.numpy() if explain else None
        self.support = None if support is None else support.numpy()
        self.belief = None if scores.belief is None else scores.belief.tolist()
        self.probability = (scores.rho / unit).softmax(dim=-1).tolist()


def _attended(encoded: EncodedDocument, beta: Floats, words: Sequence[str]) -> list[tuple[tuple[str, float], ...]]:
    """The distinct attended words of every mention, heaviest first. Weights of a repeated word are added up."""
    n, K = encoded.context.shape
    weights = np.zeros((n, len(words)), np.float32)
    mention, place = np.nonzero(beta[:n, :K])
    np.add.at(weights, (mention, encoded.context[mention, place]), beta[mention, place])
    mention, word = np.nonzero(weights)
    order = np.lexsort((word, -weights[mention, word], mention))
    ranked = [words[row] for row in word[order].tolist()]
    pairs = list(zip(ranked, weights[mention, word][order].tolist(), strict=True))
    ends = np.searchsorted(mention, np.arange(n + 1)).tolist()
    return [tuple(pairs[start:end]) for start, end in itertools.pairwise(ends)]


def _supporters(support: Floats, window: Window) -> list[tuple[tuple[int, float], ...]]:
    """The strongest supporters of every mention, by their positions in the document."""
    n = len(window.mentions)
    others = support[:n, :n] * (1 - np.eye(n, dtype=np.float32))
    strongest = np.argsort(-np.abs(others), axis=1, kind="stable")[:, :SUPPORTERS]
    weights = np.take_along_axis(others, strongest, axis=1)
    return [
        tuple((window.mentions[j], weight) for j, weight in zip(*row, strict=True) if weight)
        for row in zip(strongest.tolist(), weights.tolist(), strict=True)
    ]


def _place(document: Document, mention: Mention) -> tuple[int, int, str]:
    return mention.start, mention.end, document.surface(mention)


def weights_path(folder: Path, kind: ModelKind, *, seed: int | None = None) -> Path:
    """Weights of the best seed, or of a given one."""
    return folder / f"{kind}.safetensors" if seed is None else folder / "seeds" / f"{kind}.{seed}.safetensors"


def load_model(path: Path, kind: ModelKind, config: ModelConfig, *, dimension: int) -> LinkerModel:
    assert kind in get_args(ModelKind)
    model = LinkerModel(kind, config, dimension=dimension)
    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ArtifactError(
            f"{path} does not fit a {kind} model for {dimension}-dimensional vectors: {reason}. Run jobs/train_linker.py again."
        ) from error
    return model


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
