"""From text and spans to what the model sees: contexts and candidates, which depend on no trained weight."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
from deeped_ray.linking.encoding import EncodedDocument, EncodedGroup, Ints, Kept, encode_document, encode_group
from deeped_ray.linking.groups import Group, Texts, Window, groups_of
from deeped_ray.linking.known_names import KnownNames
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.retrieval import NUM_EVIDENCE, Retriever
from deeped_ray.types import Document, Mention


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
        return [candidates.first(self.config.first_candidates) for candidates in found]

    def _are_listed(self, group: Group) -> npt.NDArray[np.bool_]:
        if self.config.sources == "prior" or not self.lists.specs:
            return np.full(len(group.mentions), self.config.sources == "prior")
        documents = [group.texts.documents[number] for number, window in group.windows for _ in window.mentions]
        pairs = zip(documents, group.mentions, strict=True)
        return np.array([self.lists.find(*pair) is not None for pair in pairs], np.bool_)

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
        self, document: Document, *, number: int | None = None, insert_gold: bool = False
    ) -> Iterator[tuple[Window, EncodedDocument]]:
        """The document in windows that are linked jointly; most have one, a document without mentions has none.

        A mention that two windows see has its gold entity only in the window that answers it. `insert_gold` puts the gold
        entity last where pruning lost it: for training only.
        """
        for group, encoded in self.encode_all([document], number=number, insert_gold=insert_gold):
            for place, (_, window) in enumerate(group.windows):
                yield window, encoded.window(place)

    def encode_all(
        self,
        documents: Sequence[Document],
        *,
        number: int | None = None,
        insert_gold: bool = False,
        pause: Pause = no_pause,
    ) -> Iterator[tuple[Group, EncodedGroup]]:
        """The windows of the documents, group by group."""
        if not any(document.mentions for document in documents):
            return
        texts = Texts.of(documents)
        known = KnownWords(texts.text, self.words, pause)
        firsts = [self.first_candidates(document, number=number, pause=pause) for document in documents]
        for group in groups_of(texts):
            yield group, self._encode(group, firsts, known, insert_gold=insert_gold, pause=pause)

    def _encode(
        self,
        group: Group,
        all_firsts: Sequence[Sequence[Senses]],
        known: KnownWords,
        *,
        insert_gold: bool,
        pause: Pause,
    ) -> EncodedGroup:
        firsts = [all_firsts[number][place] for number, window in group.windows for place in window.mentions]
        golds = [self.catalogue.find_gold(mention) for mention in group.mentions]
        asked = [gold if is_answered else None for gold, is_answered in zip(golds, group.is_answered, strict=True)]
        starts = known.first_from(group.texts.starts)
        documents = np.repeat([number for number, _ in group.windows], np.diff(group.bounds))
        bounds = np.stack([starts[documents], starts[documents + 1]], axis=1)
        sides = known.contexts(group.spans, num_words=self.config.context_words, bounds=bounds)
        if self.config.retrieves:
            kept = self._retrieve(group, firsts, known.rows, sides, pause)
            return encode_group(group.bounds, known.rows, sides, kept, asked, num_evidence=self.num_evidence)
        contexts = [known.between(each) for each in sides]
        chosen = select_candidates(firsts, contexts, self.words.vectors, self.entity_vectors, self.config)
        if insert_gold:
            _insert_gold(chosen, firsts, golds)
        entities = [[candidate.entity_id for candidate in candidates] for candidates in chosen]
        priors = [[candidate.prior for candidate in candidates] for candidates in chosen]
        places = _places(asked, entities)
        windows = [slice(*each) for each in itertools.pairwise(group.bounds.tolist())]
        return EncodedGroup.of(
            [encode_document(contexts[each], entities[each], priors[each], places[each]) for each in windows]
        )

    def _retrieve(self, group: Group, firsts: Sequence[Senses], words: Ints, sides: Ints, pause: Pause) -> Kept:
        return self.retriever.candidates(
            group,
            firsts,
            (words, sides, self.words.vectors),
            self._are_listed(group),
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
