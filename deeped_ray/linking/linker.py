"""The linker: text in, entities with reasons out. Python, command line, evaluation and server all use it."""

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError, Part
from deeped_ray.linking.answers import Answers, Columns, Knowledge, columns_of
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.certainty import Certain, Certainty, Judged
from deeped_ray.linking.config import ModelConfig, ModelKind
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, Span
from deeped_ray.linking.encoding import EncodedDocument, padded
from deeped_ray.linking.folded import Folding
from deeped_ray.linking.inputs import LinkerInputs, Window
from deeped_ray.linking.pace import Pause, no_pause, num_threads
from deeped_ray.linking.scoring import FittedModel, Scored, log_softmax
from deeped_ray.types import Document, Mention, Mentions, Prediction, check_spans
from deeped_ray.types import LinkerKind as LinkerKind

MENTION_COUNTS = "mention_counts.parquet"
NO_CANDIDATES = "no entity is known by this name"
NOTHING_RESEMBLES = "no entity is known by this name, or by one that resembles it"
ALL_BY_PRIOR = CandidateConfig(sources="prior", evidence="prior", kept_by_prior=30, kept_by_context=0)


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
        return [*self.link_batch([self.document(text, spans)])[0]]

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

    def documents(self, texts: Sequence[str], *, mentions: Mentions | None = None) -> list[Document]:
        """Many texts with the mentions that are found in them."""
        find = functools.partial(self.document, mentions=mentions)
        _ = self.detector  # opened once, not by every thread
        return [*(map if len(texts) == 1 or self._num_threads == 1 else self._threads.map)(find, texts)]

    def link_batch(
        self, documents: Sequence[Document], *, explain: bool = True, pause: Pause = no_pause
    ) -> list[Answers]:
        """Answers for all mentions of all documents. Without `explain` they lack attended words and support."""
        link = functools.partial(self._link, explain=explain, pause=pause)
        # a pause lets others go first: that is for one thread to do
        if len(documents) == 1 or pause is not no_pause or self._num_threads == 1:
            return [*map(link, documents)]
        return [*self._threads.map(link, documents)]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Each takes documents of its own: nearly all of the work runs without Python's lock."""
        return ThreadPoolExecutor(self._num_threads, thread_name_prefix="link")

    def _link(self, document: Document, *, explain: bool, pause: Pause) -> Answers:
        if self.model is None:
            return Answers(document, self._by_prior(document, pause), self._knowledge)
        windows = []
        for window, encoded in self.inputs.encode(document, pause=pause):
            pause()
            scored = self.model.score(encoded, self._folding, explain=explain)
            pause()
            windows.append(self._columns(document, window, encoded, scored))
            pause()
        return Answers(document, windows, self._knowledge)

    @functools.cached_property
    def _knowledge(self) -> Knowledge:
        unknown = NOTHING_RESEMBLES if self.inputs.config.sources == "all" else NO_CANDIDATES
        has_coherence = self.model is not None and self.model.kind == "global"
        return Knowledge(self.inputs.catalogue, lambda rows: self.inputs.words.take(rows), unknown, has_coherence)

    @functools.cached_property
    def _folding(self) -> Folding:
        assert self.model is not None
        return self.model.fold(self.inputs.entity_vectors, self.inputs.words.vectors)

    def _by_prior(self, document: Document, pause: Pause) -> list[Columns]:
        firsts = self.inputs.first_candidates(document, pause=pause)
        if not firsts:
            return []
        judged = Judged.by_prior([document.surface(mention) for mention in document.mentions], firsts)
        certain = self._judge(judged)
        entities = np.concatenate([first.entity for first in firsts], dtype=np.int64)
        candidates = padded(np.arange(len(entities)), judged.num_candidates)
        numbers = (judged.prior, None, None, judged.prior, certain.candidates)
        sources = np.zeros(candidates.shape, np.int8)
        everyone, given = (range(len(firsts)), [True] * len(firsts)), (judged.num_candidates, candidates, entities)
        return [columns_of(*everyone, given, numbers, sources, certain.none)]

    def _judge(self, judged: Judged) -> Certain:
        if self.certainty is not None:
            return self.certainty.judge(judged)
        is_candidate = np.arange(judged.rho.shape[1]) < judged.num_candidates[:, None]
        shares = np.exp(log_softmax(judged.rho / np.float32(self.unit), is_candidate)) * is_candidate
        return Certain(shares, (judged.num_candidates == 0).astype(np.float32))

    def _columns(self, document: Document, window: Window, encoded: EncodedDocument, scored: Scored) -> Columns:
        surfaces = [document.surface(document.mentions[place]) for place in window.mentions]
        certain = self._judge(Judged.by_model(surfaces, encoded, scored))
        given = (encoded.num_candidates, encoded.candidates, encoded.entities)
        numbers = (encoded.prior, scored.psi, scored.belief, scored.rho, certain.candidates)
        answer = functools.partial(
            columns_of, window.mentions, window.is_answered, given, numbers, encoded.sources, certain.none
        )
        if not scored.explains:
            return answer()
        support = np.zeros((0, 0), np.float32) if scored.support is None else scored.support
        context = (encoded.context, encoded.num_words, len(encoded.words))
        return answer(reasons=(scored.beta, *context, support), words=encoded.words)


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
