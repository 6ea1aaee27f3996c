"""The linker: text and spans in, entities with reasons out. Command line, evaluation and server all come through here."""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from deeped_ray.artifacts import ArtifactError, KnowledgeBase, Part
from deeped_ray.linking.batching import EncodedDocument, similar_sizes
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs, Window
from deeped_ray.linking.model import LinkerModel, ModelConfig, ModelKind, Scores
from deeped_ray.linking.threads import document_threads
from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Prediction

MENTION_COUNTS = "mention_counts.parquet"
LinkerKind = Literal["prior", "local", "global"]
Span = tuple[int, int]
NO_CANDIDATES = "no entity is known by this name"
ALL_BY_PRIOR = CandidateConfig(kept_by_prior=30, kept_by_context=0)
# documents that go through the model together, and how many such batches are made of one stretch of documents
PER_BATCH, BATCHES_AT_ONCE = 16, 8
Floats = npt.NDArray[np.float32]
_Seen = tuple[int, Window, EncodedDocument]


class Linker:
    """Links mentions of documents with a trained model, or by prior alone."""

    def __init__(self, inputs: LinkerInputs, model: LinkerModel | None, *, unit: float = 1.0) -> None:
        """`unit` is the difference of scores that counts: the margin of the ranking loss, or one."""
        self.inputs = inputs
        self.unit = unit
        self._num_threads = torch.get_num_threads()
        self.model = model.eval() if model else None

    @classmethod
    def open(
        cls, kb: KnowledgeBase | str | Path, kind: LinkerKind = "global", *, lists: Sequence[str] = ()
    ) -> "Linker":
        """`lists` are external candidate lists, `ppr:FILE`."""
        kb = kb if isinstance(kb, KnowledgeBase) else KnowledgeBase(kb)
        if kind == "prior":
            counts = kb.open("linker").path / MENTION_COUNTS if lists and "linker" in kb else None
            return cls(LinkerInputs(kb, ALL_BY_PRIOR, lists=lists, counts=counts), None)
        part = kb.open("linker")
        config = CandidateConfig(**part.config["candidates"])
        inputs = LinkerInputs(kb, config, lists=lists, counts=part.path / MENTION_COUNTS)
        return cls._fitted(part, kind, inputs, weights_path(part.path, kind))

    @classmethod
    def open_seeds(cls, kb: KnowledgeBase, kind: LinkerKind, inputs: LinkerInputs) -> list["Linker"]:
        """A linker for every seed of the training run, all on the same inputs; none by prior."""
        if kind == "prior":
            return []
        part = kb.open("linker")
        first, count = part.config["training"]["seed"], part.config["training"]["seeds"]
        paths = [weights_path(part.path, kind, seed=seed) for seed in range(first, first + count)]
        return [cls._fitted(part, kind, inputs, path) for path in paths]

    @classmethod
    def _fitted(cls, part: Part, kind: ModelKind, inputs: LinkerInputs, weights: Path) -> "Linker":
        if not weights.exists():
            kb = part.path.parent.parent
            raise ArtifactError(
                f"The linker part of {kb} has no {kind} model. Run jobs/train_linker.py --kb {kb} --model both."
            )
        dimension = inputs.words.vectors.shape[1]
        model = load_model(weights, kind, ModelConfig(**part.config["model"]), dimension=dimension)
        training = part.config["training"]
        return cls(inputs, model, unit=training["margin"] if training["loss"] == "margin" else 1.0)

    def link(self, text: str, spans: Sequence[Span]) -> list[Prediction]:
        """One answer per span, in the order given."""
        check_spans(text, spans)
        document = Document("", text, tuple(Mention(start, end) for start, end in spans))
        return self.link_batch([document])[0]

    def link_batch(self, documents: Sequence[Document]) -> list[list[Prediction]]:
        """Answers for all mentions of all documents."""
        if self.model is None:
            return [self._by_prior(document) for document in documents]
        answers: list[dict[int, Prediction]] = [{} for _ in documents]
        with document_threads(self._num_threads) as threads:
            in_flight: deque[tuple[list[_Seen], Future[Scores]]] = deque()
            for batch in self._batches(documents):
                in_flight.append((batch, threads.submit(self._score, [encoded for _, _, encoded in batch])))
                while len(in_flight) > 2 * self._num_threads:
                    self._explain_batch(documents, *in_flight.popleft(), answers)
            while in_flight:
                self._explain_batch(documents, *in_flight.popleft(), answers)
        return [[found[i] for i in range(len(found))] for found in answers]

    def _batches(self, documents: Sequence[Document]) -> Iterator[list[_Seen]]:
        """Windows of the documents, with the number of their document, in batches of similar size."""
        for start in range(0, len(documents), BATCHES_AT_ONCE * PER_BATCH):
            chunk = range(start, min(start + BATCHES_AT_ONCE * PER_BATCH, len(documents)))
            seen = [(number, *window) for number in chunk for window in self.inputs.encode(documents[number])]
            for places in similar_sizes([encoded for _, _, encoded in seen], per_batch=PER_BATCH):
                yield [seen[place] for place in places]

    def _explain_batch(
        self,
        documents: Sequence[Document],
        batch: Sequence[_Seen],
        scored: "Future[Scores]",
        answers: list[dict[int, Prediction]],
    ) -> None:
        lists = _Lists(scored.result(), self.unit)
        for row, (number, window, encoded) in enumerate(batch):
            answers[number].update(self._explain(documents[number], window, encoded, lists, row))

    @torch.inference_mode()
    def _score(self, documents: Sequence[EncodedDocument]) -> Scores:
        assert self.model is not None
        scores: Scores = self.model(self.inputs.collate(documents))
        return scores

    def _by_prior(self, document: Document) -> list[Prediction]:
        catalogue = self.inputs.catalogue
        answers = []
        for mention, first in zip(document.mentions, self.inputs.first_candidates(document), strict=True):
            candidates = tuple(
                Candidate(
                    title=catalogue.title(entity_id),
                    page_id=int(catalogue.page_ids[entity_id]),
                    prior=prior,
                    local=0.0,
                    coherence=None,
                    score=prior,
                    probability=prior,
                )
                for entity_id, prior, _ in first
            )
            reason = None if candidates else NO_CANDIDATES
            answers.append(Prediction(*_place(document, mention), candidates, reason=reason))
        return answers

    def _explain(
        self, document: Document, window: Window, encoded: EncodedDocument, scores: "_Lists", row: int
    ) -> Iterator[tuple[int, Prediction]]:
        """Turn one document's rows of the model's output into answers with their reasons, by place of the mention."""
        titles = self.inputs.catalogue.titles(encoded.entities)
        page_ids = self.inputs.catalogue.page_ids[encoded.entities].tolist()
        words = self.inputs.words.take(encoded.words)
        entities, priors = encoded.candidates.tolist(), encoded.prior.tolist()
        attended = _attended(encoded, scores.beta[row], words)
        for i, (place, is_answered) in enumerate(zip(*window, strict=True)):
            if not is_answered:
                continue
            num = int(encoded.num_candidates[i])
            span = _place(document, document.mentions[place])
            if not num:
                yield place, Prediction(*span, reason=NO_CANDIDATES)
                continue
            beliefs = scores.belief[row][i] if scores.belief else [None] * num
            parts = scores.rho[row][i], scores.psi[row][i], beliefs, scores.probability[row][i]
            candidates = [
                Candidate(titles[e], page_ids[e], prior, psi, belief, rho, probability)
                for e, prior, rho, psi, belief, probability in zip(entities[i][:num], priors[i], *parts, strict=False)
            ]
            candidates.sort(key=lambda candidate: -candidate.score)
            yield place, Prediction(*span, tuple(candidates), attended[i])


class _Lists:
    """The model's output as plain lists: picking numbers out of tensors one by one is slow."""

    def __init__(self, scores: Scores, unit: float) -> None:
        self.rho = scores.rho.tolist()
        self.psi = scores.psi.tolist()
        self.beta = scores.beta.numpy()
        self.belief = None if scores.belief is None else scores.belief.tolist()
        self.probability = (scores.rho / unit).softmax(dim=-1).tolist()


def _attended(encoded: EncodedDocument, beta: Floats, words: Sequence[str]) -> list[tuple[tuple[str, float], ...]]:
    """For every mention its distinct attended words, weights of repeated ones added up, heaviest first."""
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


def _place(document: Document, mention: Mention) -> tuple[int, int, str]:
    return mention.start, mention.end, document.surface(mention)


def weights_path(folder: Path, kind: ModelKind, *, seed: int | None = None) -> Path:
    """Of the best seed, or of a given one."""
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
    """Refuse spans that lie outside the text, are empty, or overlap."""
    for start, end in spans:
        if not 0 <= start < end <= len(text):
            raise DeepEdError(f"Span {start}:{end} does not lie within the text, which has {len(text)} characters.")
    ordered = sorted(spans)
    for (start, end), (next_start, next_end) in itertools.pairwise(ordered):
        if next_start < end:
            raise DeepEdError(f"Spans {start}:{end} and {next_start}:{next_end} overlap.")
