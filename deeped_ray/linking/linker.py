"""The linker: text in, entities with reasons out. Python, command line, evaluation and server all use it."""

import functools
import itertools
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
from deeped_ray.linking.encoding import EncodedGroup, encode_document
from deeped_ray.linking.folded import Folding
from deeped_ray.linking.groups import MOST_MENTIONS, Group, Texts, Window, lots_of
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.pace import Pause, no_pause, num_threads
from deeped_ray.linking.scoring import AllScored, FittedModel, log_softmax
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
        num_threads = 1 if pause is not no_pause else self._num_threads
        num_mentions = sum(len(document.mentions) for document in documents)
        lots = lots_of(documents, most=min(MOST_MENTIONS, -(-num_mentions // num_threads)))
        linked = map(link, lots) if num_threads == 1 or len(lots) == 1 else self._threads.map(link, lots)
        return [*itertools.chain.from_iterable(linked)]

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Each takes documents of its own: nearly all of the work runs without Python's lock."""
        return ThreadPoolExecutor(self._num_threads, thread_name_prefix="link")

    def _link(self, documents: Sequence[Document], *, explain: bool, pause: Pause) -> list[Answers]:
        model = self.model
        if model is None:
            return [Answers(document, self._by_prior(document, pause), self._knowledge) for document in documents]
        windows: dict[int, list[Columns]] = {number: [] for number in range(len(documents))}
        for group, encoded in self.inputs.encode_all(documents, pause=pause):
            scored = model.score_all(encoded, self._folding, explain=explain)
            pause()
            found = columns_of(group, encoded, scored, self._judge_all(group, encoded, scored))
            for (number, _), columns in zip(group.windows, found, strict=True):
                windows[number].append(columns)
            pause()
        return [Answers(document, windows[number], self._knowledge) for number, document in enumerate(documents)]

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
        n, nothing = len(firsts), np.zeros(0, np.int64)
        judged = Judged.by_prior([document.surface(mention) for mention in document.mentions], firsts)
        entities, priors = ([getattr(first, name).tolist() for first in firsts] for name in ("entity", "prior"))
        encoded = EncodedGroup.of([encode_document([nothing] * n, entities, priors, [-1] * n)])
        group = Group.of(Texts.of([document]), [(0, Window([*range(n)], [True] * n))])
        none = np.zeros(0, np.float32)
        scored = AllScored(np.ravel(judged.prior), none, none, none, none, explains=False)
        return columns_of(group, encoded, scored, _flat([self._judge(judged)]))

    def _judge_all(self, group: Group, encoded: EncodedGroup, scored: AllScored) -> Certain:
        if self.certainty is not None:
            return self.certainty.judge_all(group.surfaces, group.names, encoded, scored)
        windows = [(encoded.window(w), scored.window(encoded, w)) for w in range(len(encoded))]
        return _flat([self._judge(Judged.by_model([], *each)) for each in windows])

    def _judge(self, judged: Judged) -> Certain:
        if self.certainty is not None:
            return self.certainty.judge(judged)
        is_candidate = np.arange(judged.rho.shape[1]) < judged.num_candidates[:, None]
        shares = np.exp(log_softmax(judged.rho / np.float32(self.unit), is_candidate)) * is_candidate
        return Certain(shares, (judged.num_candidates == 0).astype(np.float32))


def _flat(windows: Sequence[Certain]) -> Certain:
    """As `Certainty.judge_all` answers."""
    return Certain(
        np.concatenate([np.ravel(each.candidates) for each in windows]), np.concatenate([each.none for each in windows])
    )


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
