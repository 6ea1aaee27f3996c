"""From text and spans to what the model sees: contexts and candidates, which depend on no trained weight."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deeped_ray.corpus.catalogue import Catalogue, ExtendedCatalogue
from deeped_ray.corpus.cooccurrence import GRAPH, WordCounts
from deeped_ray.corpus.priors import MentionTable, PriorCandidate, Senses
from deeped_ray.corpus.wikidata_ids import ids_part
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.link_vectors import LinkVectors
from deeped_ray.embeddings.name_index import NameIndex
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig, KnownWords, select_candidates
from deeped_ray.linking.coreference import share_person_candidates
from deeped_ray.linking.detection import DetectionConfig, Detector, SpacyDetector, open_detector
from deeped_ray.linking.encoding import EncodedDocument, Ints, Kept, encode_document, encode_rows
from deeped_ray.linking.known_names import KnownNames
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.near_kernels import sum_contexts
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.retrieval import NUM_EVIDENCE, Retriever
from deeped_ray.types import Document, Mention

# Differs from the paper: belief propagation grows with the square of the mentions, so longer documents are linked in
# windows of this many, each mention in the window where it stands farthest from the rim.
MAX_JOINT_MENTIONS = 100
AROUND = 2000
"""Characters before and after the mentions of a window whose words are compared with titles."""


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
    ) -> None:
        self._kb, self.config = kb, config
        corpus = kb.open("corpus")
        self.mentions = MentionTable(corpus)
        self.lists = lists or CandidateLists([])
        named = [(candidate.title, candidate.page_id) for candidate in self.lists.all_candidates()]
        ids = ids_part(kb)
        self.catalogue = ExtendedCatalogue(corpus, dict.fromkeys(named), ids) if named else Catalogue(corpus, ids)
        self.counts = MentionCounts.read(counts, self.catalogue) if counts and counts.exists() else MentionCounts()

    # the prior alone needs neither words nor vectors, so that it can be looked at before they are made
    @functools.cached_property
    def words(self) -> Words:
        return Words(self._kb.open("words"))

    @functools.cached_property
    def entity_vectors(self) -> Layers:
        own = np.asarray(self._kb.open("vectors").array("vectors"))
        if not isinstance(self.catalogue, ExtendedCatalogue) or not self.catalogue.extra_titles:
            return Layers(own)
        return Layers(own, TextEmbedder(self._kb).embed_all([(title, "") for title in self.catalogue.extra_titles]))

    def open_detector(self, config: DetectionConfig) -> Detector | SpacyDetector:
        return open_detector(self._kb, config)

    @functools.cached_property
    def retriever(self) -> Retriever:
        graph = WordCounts(self._kb.open("corpus"), GRAPH)
        names, index = KnownNames(NameIndex.open(self._kb, names=self.mentions)), EntityIndex.open(self._kb)
        vectors, link_vectors = self.entity_vectors, LinkVectors(self._kb.open("index"))
        return Retriever(names, index, graph, self.catalogue, entity_vectors=vectors, link_vectors=link_vectors)

    def open_all(self) -> None:
        """Open now what is opened when it is first asked for."""
        _ = self.words, self.entity_vectors
        if self.config.retrieves:
            _ = self.retriever

    @property
    def num_evidence(self) -> int:
        """What f is given beside belief and prior."""
        return NUM_EVIDENCE if self.config.evidence == "all" else 0

    def first_candidates(
        self, document: Document, *, number: int | None = None, pause: Pause = no_pause
    ) -> list[Senses]:
        """For every mention the best candidates by prior, before anything else is looked at.

        `number` is a training document's, whose own annotations must not speak for it.
        """
        listed: list[Senses | None] = [None] * len(document.mentions)
        if self.lists.specs:
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
        most = self.config.first_candidates
        return [candidates if len(candidates.entity) <= most else candidates[:most] for candidates in found]

    def _are_listed(self, document: Document, mentions: Sequence[Mention]) -> list[bool]:
        if self.config.sources == "prior" or not self.lists.specs:
            return [self.config.sources == "prior"] * len(mentions)
        return [self.lists.find(document, mention) is not None for mention in mentions]

    def _listed(self, document: Document, mention: Mention, number: int | None) -> Senses | None:
        """Candidates of an external list, if there is one for the mention."""
        listed = self.lists.find(document, mention)
        if listed is None:
            return None
        links: dict[int, int] = {}
        for candidate in listed:
            entity = self.catalogue.find(candidate.title)
            assert entity is not None, "every listed title is in the extended catalogue"
            links[entity] = max(candidate.num_links, links.get(entity, 0))
        surface = document.surface(mention)
        return Senses.of(self.counts.priors(surface, list(links), list(links.values()), without=number))

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
        firsts = self.first_candidates(document, number=number, pause=pause)
        for window in windows_of(document.mentions):
            yield window, self._encode(document, firsts, window, known, insert_gold=insert_gold, pause=pause)

    def _encode(
        self,
        document: Document,
        all_firsts: Sequence[Senses],
        window: Window,
        known: KnownWords,
        *,
        insert_gold: bool,
        pause: Pause,
    ) -> EncodedDocument:
        mentions = [document.mentions[i] for i in window.mentions]
        firsts = [all_firsts[i] for i in window.mentions]
        golds = [self.catalogue.find_gold(mention) for mention in mentions]
        asked = [gold if is_answered else None for gold, is_answered in zip(golds, window.is_answered, strict=True)]
        sides = known.contexts(mentions, num_words=self.config.context_words)
        if not self.config.retrieves:
            contexts = [known.around(mention, num_words=self.config.context_words) for mention in mentions]
            chosen = select_candidates(firsts, contexts, self.words.vectors, self.entity_vectors, self.config)
            if insert_gold:
                _insert_gold(chosen, firsts, golds)
            entities = [[candidate.entity_id for candidate in candidates] for candidates in chosen]
            priors = [[candidate.prior for candidate in candidates] for candidates in chosen]
            return encode_document(contexts, entities, priors, _places(asked, entities))
        kept = self._retrieve(document, mentions, firsts, known.rows, sides, pause)
        return encode_rows(known.rows, sides, kept, asked, num_evidence=self.num_evidence)

    def _retrieve(
        self,
        document: Document,
        mentions: Sequence[Mention],
        firsts: Sequence[Senses],
        words: Ints,
        sides: Ints,
        pause: Pause,
    ) -> Kept:
        sums = np.zeros((len(mentions), self.entity_vectors.shape[1]), np.float32)
        sum_contexts(self.words.vectors, words, sides, sums)
        return self.retriever.candidates(
            [document.surface(mention) for mention in mentions],
            firsts,
            sums,
            self._are_listed(document, mentions),
            text=document.text[max(mentions[0].start - AROUND, 0) : mentions[-1].end + AROUND],
            by_prior=self.config.kept_by_prior,
            by_score=self.config.num_candidates - self.config.kept_by_prior,
            pause=pause,
        )


def _insert_gold(chosen: Sequence[list[PriorCandidate]], firsts: Sequence[Senses], golds: Sequence[int | None]) -> None:
    """Put the gold entity last where pruning lost it."""
    for kept, first, gold_id in zip(chosen, firsts, golds, strict=True):
        lost = [c for c in first if c.entity_id == gold_id and c not in kept]
        kept[len(kept) - len(lost) :] = lost


def _places(golds: Sequence[int | None], entities: Sequence[Sequence[int]]) -> list[int]:
    """Where the gold entity stands among the candidates; -1 if it is not among them."""
    return [row.index(gold) if gold in row else -1 for gold, row in zip(golds, entities, strict=True)]


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
