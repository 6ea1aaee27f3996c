"""From text and spans to what the model sees: contexts and candidates, which depend on no trained weight."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue, ExtendedCatalogue
from deeped_ray.corpus.cooccurrence import GRAPH, WordCounts
from deeped_ray.corpus.priors import MentionTable, PriorCandidate
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.name_index import NameIndex
from deeped_ray.embeddings.name_search import NameSearch
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig, KnownWords, select_candidates
from deeped_ray.linking.coreference import share_person_candidates
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, open_detector
from deeped_ray.linking.encoding import EncodedDocument, encode_document
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.retrieval import NUM_EVIDENCE, Retriever, keep
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.types import Document, Mention

# Differs from the paper: belief propagation grows with the square of the mentions, so longer documents are linked in
# windows of this many, each mention in the window where it stands farthest from the rim.
MAX_JOINT_MENTIONS = 100
SECONDS_PER_SEARCH = 0.001
"""Looking for names that resemble an unknown one takes about as long at 520,000 entities."""


class Window(NamedTuple):
    """Mentions that are linked jointly, by their places in the document."""

    mentions: list[int]
    is_answered: list[bool]
    """False where another window has the better view."""


class LinkerInputs:
    """Looks up everything about a mention that does not depend on the trained model."""

    def __init__(
        self,
        kb: KnowledgeBase,
        config: CandidateConfig,
        *,
        lists: CandidateLists | None = None,
        counts: Path | None = None,
        names: NameSearch | None = None,
    ) -> None:
        """`names` proposes entities for mentions that the prior does not know."""
        self._kb, self.config, self.names = kb, config, names
        corpus = kb.open("corpus")
        self.mentions = MentionTable(corpus)
        self.lists = lists or CandidateLists([])
        named = [(candidate.title, candidate.page_id) for candidate in self.lists.all_candidates()]
        self.catalogue = ExtendedCatalogue(corpus, dict.fromkeys(named)) if named else Catalogue(corpus)
        self.counts = MentionCounts.read(counts, self.catalogue) if counts and counts.exists() else MentionCounts()

    # the prior alone needs neither words nor vectors, so that it can be looked at before they are made
    @functools.cached_property
    def words(self) -> Words:
        return Words(self._kb.open("words"))

    @functools.cached_property
    def entity_vectors(self) -> npt.NDArray[np.float32]:
        own = np.asarray(self._kb.open("vectors").array("vectors"))
        if not isinstance(self.catalogue, ExtendedCatalogue) or not self.catalogue.extra_titles:
            return own
        titles = [(title, "") for title in self.catalogue.extra_titles]
        return np.concatenate([own, TextEmbedder(self._kb).embed_all(titles)])

    def open_detector(self, config: DetectionConfig) -> Detector | SpacyDetector:
        return open_detector(self._kb.open("corpus"), config)

    def first_candidates(
        self,
        document: Document,
        *,
        number: int | None = None,
        known: KnownWords | None = None,
        pause: Pause = no_pause,
    ) -> list[list[PriorCandidate]]:
        """For every mention the best candidates by prior, before the context is looked at.

        `number` is a training document's, whose own annotations must not speak for it. Entities whose names resemble a
        mention that is not known have a prior of 0. `known` are the words of the document, if they are at hand.
        """
        listed = [self._listed(document, mention, number) for mention in document.mentions]
        surfaces = [document.surface(mention) for mention in document.mentions]
        found = []
        for surface, candidates in zip(surfaces, listed, strict=True):
            found.append(self.mentions.candidates(surface) if candidates is None else candidates)
            pause()
        if self.config.coreference != "none":
            shared = share_person_candidates(surfaces, found, self.catalogue.is_person, self.config.coreference, pause)
            # lists come as their makers want them
            found = [
                theirs if candidates is None else candidates for theirs, candidates in zip(shared, listed, strict=True)
            ]
        unknown = [i for i, candidates in enumerate(found) if not candidates and listed[i] is None]
        if self.names is not None and unknown:
            known = known or KnownWords(document.text, self.words, pause)
            pause(len(unknown) * SECONDS_PER_SEARCH)
            for i in unknown:
                found[i] = self._resembling(document, document.mentions[i], known)
                pause()
        return [candidates[: self.config.first_candidates] for candidates in found]

    def _resembling(self, document: Document, mention: Mention, known: KnownWords) -> list[PriorCandidate]:
        """Of the entities whose names resemble a mention, those nearest to its context."""
        assert self.names is not None
        rows = known.around(mention, num_words=self.config.context_words)
        context = self.words.vectors[rows].sum(axis=0)
        surface, count = document.surface(mention), self.config.num_candidates
        similar = self.names.similar_names(surface, context, self.entity_vectors, count=count)
        return [PriorCandidate(each.entity_id, 0.0, 0.0) for each in similar]

    def _listed(self, document: Document, mention: Mention, number: int | None) -> list[PriorCandidate] | None:
        """Candidates of an external list, if there is one for the mention."""
        listed = self.lists.find(document, mention)
        if listed is None:
            return None
        links: dict[int, int] = {}
        for candidate in listed:
            entity = self.catalogue.find(candidate.title)
            assert entity is not None, "every listed title is in the extended catalogue"
            links[entity] = max(candidate.num_links, links.get(entity, 0))
        return self.counts.priors(document.surface(mention), list(links), list(links.values()), without=number)

    def encode(
        self, document: Document, *, number: int | None = None, insert_gold: bool = False, pause: Pause = no_pause
    ) -> Iterator[tuple[Window, EncodedDocument]]:
        """The document in windows that are linked jointly; most have one, a document without mentions has none.

        A mention that two windows see has its gold entity only in the window that answers it. `insert_gold` puts the gold
        entity last where pruning lost it: for training only.
        """
        if not document.mentions:
            return
        known = KnownWords(document.text, self.words, pause)
        firsts = self.first_candidates(document, number=number, known=known, pause=pause)
        for window in windows_of(document.mentions):
            yield window, self._encode(document, firsts, window, known, insert_gold=insert_gold)

    def _encode(
        self,
        document: Document,
        all_firsts: Sequence[list[PriorCandidate]],
        window: Window,
        known: KnownWords,
        *,
        insert_gold: bool,
    ) -> EncodedDocument:
        mentions = [document.mentions[i] for i in window.mentions]
        firsts = [all_firsts[i] for i in window.mentions]
        contexts = [known.around(mention, num_words=self.config.context_words) for mention in mentions]
        golds = [self.catalogue.find_gold(mention) for mention in mentions]
        if self.config.sources == "all":
            return self._retrieve(document, mentions, firsts, contexts, golds, window)
        chosen = select_candidates(firsts, contexts, self.words.vectors, self.entity_vectors, self.config)
        if insert_gold:
            for kept, first, gold_id in zip(chosen, firsts, golds, strict=True):
                lost = [c for c in first if c.entity_id == gold_id and c not in kept]
                kept[len(kept) - len(lost) :] = lost
        entities = [[candidate.entity_id for candidate in candidates] for candidates in chosen]
        priors = [[candidate.prior for candidate in candidates] for candidates in chosen]
        gold = [
            row.index(id_) if is_answered and id_ in row else -1
            for row, id_, is_answered in zip(entities, golds, window.is_answered, strict=True)
        ]
        return encode_document(contexts, entities, priors, gold)


    @functools.cached_property
    def retriever(self) -> Retriever:
        graph = WordCounts(self._kb.open("corpus"), GRAPH)
        return Retriever(
            NameIndex.open(self._kb), EntityIndex.open(self._kb), graph, self.catalogue, self.entity_vectors
        )

    @property
    def num_evidence(self) -> int:
        return NUM_EVIDENCE if self.config.sources == "all" else 0

    def _retrieve(self, document, mentions, firsts, contexts, golds, window) -> EncodedDocument:
        sums = np.zeros((len(mentions), self.entity_vectors.shape[1]), np.float32)
        for row, context in zip(sums, contexts, strict=True):
            row[:] = self.words.vectors[context].sum(axis=0)
        surfaces = [document.surface(mention) for mention in mentions]
        is_listed = [self.lists.find(document, mention) is not None for mention in mentions]
        pool = self.retriever.pool(surfaces, firsts, sums, is_listed)
        kept = keep(pool, surfaces, self.catalogue.titles, by_prior=self.config.kept_by_prior, by_score=self.config.kept_by_context)
        ends = np.cumsum(kept.counts)
        entities = [each.tolist() for each in np.split(kept.entity, ends[:-1])]
        priors = [each.tolist() for each in np.split(kept.prior, ends[:-1])]
        gold = [
            row.index(id_) if is_answered and id_ in row else -1
            for row, id_, is_answered in zip(entities, golds, window.is_answered, strict=True)
        ]
        return encode_document(contexts, entities, priors, gold, evidence=kept.evidence, sources=kept.sources)


def windows_of(mentions: Sequence[Mention], *, size: int | None = None) -> list[Window]:
    """Windows over the mentions in text order, each half over the one before; every mention is answered in one."""
    size = size or MAX_JOINT_MENTIONS
    order = sorted(range(len(mentions)), key=lambda i: mentions[i].start)
    if len(order) <= size:
        return [Window(order, [True] * len(order))]
    step = max(size // 2, 1)
    starts = [*range(0, len(order) - size, step), len(order) - size]
    # the border between two windows lies in the middle of what they share
    borders = [0, *((start + size + after) // 2 for start, after in itertools.pairwise(starts)), len(order)]
    return [
        Window(order[start : start + size], [low <= place < high for place in range(start, start + size)])
        for start, low, high in zip(starts, borders, borders[1:], strict=False)
    ]
