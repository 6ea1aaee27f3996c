"""The linker: text and spans in, entities with reasons out. Command line, evaluation and server all come through here."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from deeped_ray.artifacts import ArtifactError, KnowledgeBase
from deeped_ray.corpus.entities import Catalogue, ExtendedCatalogue
from deeped_ray.corpus.priors import MentionTable, PriorCandidate
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.embeddings.words import Words
from deeped_ray.linking.batching import EncodedMention, collate
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig, KnownWords, select_candidates
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.model import LinkerModel, ModelConfig, ModelKind, Scores
from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Prediction

MENTION_COUNTS = "mention_counts.parquet"
LinkerKind = Literal["prior", "local", "global"]
Span = tuple[int, int]
NO_CANDIDATES = "no entity is known by this name"
ALL_BY_PRIOR = CandidateConfig(kept_by_prior=30, kept_by_context=0)
# Differs from the paper: belief propagation grows with the square of the mentions, so longer documents are linked in
# runs of this many.
MAX_JOINT_MENTIONS = 100


class LinkerInputs:
    """Everything about a mention that does not depend on the trained model: context and candidates."""

    def __init__(
        self,
        kb: KnowledgeBase,
        config: CandidateConfig,
        *,
        lists: Sequence[str] = (),
        counts: Path | None = None,
    ) -> None:
        self._kb, self.config = kb, config
        corpus = kb.open("corpus")
        self.mentions = MentionTable(corpus)
        self.lists = CandidateLists(lists)
        named = [(candidate.title, candidate.page_id) for candidate in self.lists.all_candidates()]
        self.catalogue = ExtendedCatalogue(corpus, dict.fromkeys(named)) if lists else Catalogue(corpus)
        self.counts = MentionCounts.read(counts, self.catalogue) if counts and counts.exists() else MentionCounts()

    # the prior alone needs neither words nor vectors, so that it can be looked at before they are made
    @functools.cached_property
    def words(self) -> Words:
        return Words(self._kb.open("words"))

    @functools.cached_property
    def entity_vectors(self) -> npt.NDArray[np.float32]:
        own = self._kb.open("vectors").array("vectors")
        if not isinstance(self.catalogue, ExtendedCatalogue) or not self.catalogue.extra_titles:
            return own
        embedder = TextEmbedder(self._kb)
        return np.concatenate([own, np.stack([embedder.embed(title, "") for title in self.catalogue.extra_titles])])

    def first_candidates(self, document: Document, *, number: int | None = None) -> list[list[PriorCandidate]]:
        """For every mention the best candidates by prior, before the context is looked at.

        `number` is a training document's, whose own annotations must not speak for it.
        """
        found = (self._candidates(document, mention, number) for mention in document.mentions)
        return [candidates[: self.config.first_candidates] for candidates in found]

    def _candidates(self, document: Document, mention: Mention, number: int | None) -> list[PriorCandidate]:
        listed = self.lists.find(document, mention)
        if listed is None:
            return self.mentions.candidates(document.surface(mention))
        links: dict[int, int] = {}
        for candidate in listed:
            entity = self.catalogue.find(candidate.title)
            assert entity is not None, "every listed title is in the extended catalogue"
            links[entity] = max(candidate.num_links, links.get(entity, 0))
        return self.counts.priors(document.surface(mention), list(links), list(links.values()), without=number)

    def encode(self, document: Document, *, number: int | None = None) -> list[EncodedMention]:
        known = KnownWords(document.text, self.words)
        firsts = self.first_candidates(document, number=number)
        return [self._encode_mention(m, first, known) for m, first in zip(document.mentions, firsts, strict=True)]

    def _encode_mention(self, mention: Mention, first: list[PriorCandidate], known: KnownWords) -> EncodedMention:
        context = known.around(mention, num_words=self.config.context_words)
        candidates = select_candidates(first, context, self.words, self.entity_vectors, self.config)
        gold_id = self.catalogue.find_gold(mention)
        positions = [position for position, candidate in enumerate(candidates) if candidate.entity_id == gold_id]
        return EncodedMention(context, candidates, positions[0] if positions else -1)


class Linker:
    """Links mentions of documents with a trained model, or by prior alone."""

    def __init__(self, inputs: LinkerInputs, model: LinkerModel | None, *, margin: float = 0.01) -> None:
        self.inputs = inputs
        self.margin = margin
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
        path = part.path / f"{kind}.safetensors"
        if not path.exists():
            raise ArtifactError(
                f"The linker part of {kb.root} has no {kind} model. Run jobs/train_linker.py --kb {kb.root} --model both."
            )
        model = load_model(path, kind, ModelConfig(**part.config["model"]), dimension=inputs.words.vectors.shape[1])
        return cls(inputs, model, margin=part.config["training"]["margin"])

    def link(self, text: str, spans: Sequence[Span]) -> list[Prediction]:
        """One answer per span, in the order given."""
        check_spans(text, spans)
        document = Document("", text, tuple(Mention(start, end) for start, end in spans))
        return self.link_batch([document])[0]

    @torch.inference_mode()
    def link_batch(self, documents: Sequence[Document]) -> list[list[Prediction]]:
        """Answers for all mentions of all documents."""
        return [self._link_document(document) for document in documents]

    def _link_document(self, document: Document) -> list[Prediction]:
        if self.model is None:
            firsts = self.inputs.first_candidates(document)
            return [self._by_prior(document, m, first) for m, first in zip(document.mentions, firsts, strict=True)]
        encoded = self.inputs.encode(document)
        answers: dict[int, Prediction] = {}
        for run in joint_runs(document.mentions):
            scores = self.model(
                collate([[encoded[i] for i in run]], self.inputs.words.vectors, self.inputs.entity_vectors)
            )
            for row, i in enumerate(run):
                answers[i] = self._explain(document, document.mentions[i], encoded[i], scores, row)
        return [answers[i] for i in range(len(encoded))]

    def _by_prior(self, document: Document, mention: Mention, first: list[PriorCandidate]) -> Prediction:
        candidates = [
            Candidate(
                self.inputs.catalogue.title(c.entity_id),
                int(self.inputs.catalogue.page_ids[c.entity_id]),
                c.prior,
                0.0,
                None,
                c.prior,
                c.prior,
            )
            for c in first
        ]
        reason = None if candidates else NO_CANDIDATES
        return Prediction(mention.start, mention.end, document.surface(mention), tuple(candidates), reason=reason)

    def _explain(
        self, document: Document, mention: Mention, encoded: EncodedMention, scores: Scores, row: int
    ) -> Prediction:
        """Turn row `row` of the model's output into an answer with its reasons."""
        surface = document.surface(mention)
        if not encoded.candidates:
            return Prediction(mention.start, mention.end, surface, reason=NO_CANDIDATES)
        num = len(encoded.candidates)
        rho, psi = scores.rho[0, row, :num], scores.psi[0, row, :num].tolist()
        belief = scores.belief[0, row, :num].tolist() if scores.belief is not None else [None] * num
        # scores are trained to differ by the margin, so the margin is their unit
        probability, order = (
            (rho / self.margin).softmax(dim=0).tolist(),
            rho.argsort(descending=True, stable=True).tolist(),
        )
        candidates = tuple(
            Candidate(
                title=self.inputs.catalogue.title(encoded.candidates[s].entity_id),
                page_id=int(self.inputs.catalogue.page_ids[encoded.candidates[s].entity_id]),
                prior=encoded.candidates[s].prior,
                local=psi[s],
                coherence=belief[s],
                score=float(rho[s]),
                probability=probability[s],
            )
            for s in order
        )
        return Prediction(mention.start, mention.end, surface, candidates, self._attended(encoded, scores.beta[0, row]))

    def _attended(self, encoded: EncodedMention, beta: torch.Tensor) -> tuple[tuple[str, float], ...]:
        """Distinct attended words, weights of repeated ones added up, heaviest first."""
        weights: dict[int, float] = {}
        for word_id, weight in zip(encoded.context, beta.tolist(), strict=False):
            if weight > 0:
                weights[word_id] = weights.get(word_id, 0.0) + weight
        ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
        return tuple((self.inputs.words[word_id], weight) for word_id, weight in ranked)


def joint_runs(mentions: Sequence[Mention]) -> list[list[int]]:
    """Positions of mentions, in text order, in runs that are linked jointly."""
    order = sorted(range(len(mentions)), key=lambda i: mentions[i].start)
    return [order[start : start + MAX_JOINT_MENTIONS] for start in range(0, len(order), MAX_JOINT_MENTIONS)]


def load_model(path: Path, kind: ModelKind, config: ModelConfig, *, dimension: int) -> LinkerModel:
    assert kind in get_args(ModelKind)
    model = LinkerModel(kind, config, dimension=dimension)
    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, OSError) as error:
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
