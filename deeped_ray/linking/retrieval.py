"""Which entities a mention may mean: the step between the prior and the model. All sources go into one pool:

    prior         p(e|m) of the mention table, or a candidate list
    name: ...     entities with a name that contains, abbreviates, inflects or resembles the mention (`name_index`)
    longer name   what a longer name of the same document can mean: `Sox` after `Chicago White Sox`, `IAEA` after its name
    document      entities near what the document is certain of (FAISS), or linked from it, that share a word with the mention
    context       entities near the document's words (FAISS) that share a word with the mention

From the pool a mention keeps some by prior, and then those with the highest score, a weighted sum of the evidence. The
model's f is given the evidence too. Everything here depends on the document alone, so that training, evaluation, command
line and server see the same candidates.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.link_vectors import LinkVectors
from deeped_ray.embeddings.name_forms import LONGEST_NAME, acronym_of, form_of, initials_of
from deeped_ray.embeddings.name_index import KINDS, NameIndex
from deeped_ray.linking import retrieval_kernels as kernels
from deeped_ray.linking.encoding import Floats, Ints, log_prior
from deeped_ray.linking.kernels import row_dots
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.linking.title_evidence import TITLE_MEASURES, Named, compare_titles, words_in

SOURCES = ("prior", *(f"name: {kind}" for kind in KINDS), "longer name", "document", "context")
"""Where a candidate can come from. If several sources have it, the first of them is named."""
MEASURES = (
    "context fit",  # cosine with the mention's context words
    "document fit",  # cosine with what the other mentions seem to mean
    "links",  # logarithm of the links to the entity
    "share of links",  # logarithm of its share among the links to all entities of the pool
    "count",  # logarithm of the links from this mention to the entity
    "called so",  # share of the entity's links that have this mention as their text
    "link fit",  # cosine with what the other mentions seem to mean, by the pages that link to both
    *TITLE_MEASURES,
)
"""What else is known about a candidate."""
EVIDENCE = (*SOURCES, *MEASURES)
NUM_EVIDENCE = len(EVIDENCE) - 1
"""What f is given beside the prior, which it always has."""
PRIOR, NAME, LONGER_NAME, DOCUMENT, CONTEXT = 0, 1, *range(1 + len(KINDS), len(SOURCES))
CONTEXT_FIT, DOCUMENT_FIT, LINKS, SHARE_OF_LINKS, COUNT, CALLED_SO, LINK_FIT, TITLES = range(
    len(SOURCES), len(EVIDENCE) - len(TITLE_MEASURES) + 1
)
# Of the softmax regression that finds the gold entity in the pools of AIDA train and of held-out links.
_WEIGHTS = {
    "name: words": 3.2,
    "name: initials": 0.6,
    "name: inflection": 0.1,
    "name: typo": 1.8,
    "name: part": 1.8,
    "longer name": 2.2,
    "document": 0.3,
    "context": 0.6,
    "context fit": 11.9,
    "document fit": 3.4,
    "links": 0.5,
    "share of links": 0.5,
    "count": 2.0,
    "called so": -0.8,
}
# Standard deviations among the candidates of AIDA train: f learns better if what it is given varies alike.
_SPREADS = {
    "name: equals": 0.4,
    "name: words": 0.35,
    "name: initials": 0.2,
    "name: inflection": 0.2,
    "name: typo": 0.1,
    "name: part": 0.1,
    "longer name": 0.1,
    "document": 0.4,
    "context": 0.2,
    "context fit": 0.1,
    "document fit": 0.2,
    "links": 0.2,
    "share of links": 0.2,
    "count": 0.3,
    "called so": 0.4,
    "link fit": 0.3,
    "mention in title": 0.4,
    "title in mention": 0.35,
    "rest of title": 0.2,
    "rest in text": 0.3,
    "siblings": 0.2,
}
_SPREAD_OF = np.array([_SPREADS.get(name, 1.0) for name in EVIDENCE], np.float32)
_WEIGHT_OF = np.array([_WEIGHTS.get(name, 0.0) for name in EVIDENCE], np.float32)
_PRIOR_WEIGHT = np.float32(0.4)
"""Of the logarithm of the prior."""
CONSULTED = 24
"""Entities of a mention that say what it seems to mean, at most."""
NEIGHBOURS = 100
"""Entities nearest to the document's words, and to its entities, that are looked through for the words of a mention."""
MOST_LINKED = 400
"""Entities linked from those of the document that are looked through, at most: those with most such links."""


class Pool(NamedTuple):
    """Entities of all mentions of a document; by mention, then by entity."""

    mention: Ints
    entity: Ints
    evidence: Floats
    """A column for each of EVIDENCE."""

    def take(self, rows: Ints) -> "Pool":
        return Pool(self.mention[rows], self.entity[rows], self.evidence[rows])


class Kept(NamedTuple):
    """Candidates of all mentions, one mention after the other, each by falling prior."""

    counts: Ints
    entity: Ints
    prior: Floats
    evidence: Floats
    """For f: without the prior, over its usual spread."""
    sources: npt.NDArray[np.int8]
    """Places in SOURCES."""


class Retriever:
    """Finds candidates for all mentions of a document at once."""

    def __init__(
        self,
        names: NameIndex,
        index: EntityIndex,
        graph: WordCounts,
        catalogue: Catalogue,
        *,
        entity_vectors: Floats,
        link_vectors: LinkVectors,
    ) -> None:
        self.names, self._index, self._graph = names, index, graph
        self._catalogue, self._vectors, self._link_vectors = catalogue, entity_vectors, link_vectors

    def candidates(
        self,
        surfaces: Sequence[str],
        firsts: Sequence[Sequence[PriorCandidate]],
        contexts: Floats,
        is_listed: Sequence[bool],
        *,
        text: str,
        by_prior: int,
        by_score: int,
        pause: Pause = no_pause,
    ) -> Kept:
        """`firsts` are candidates by prior, `contexts` the sums of each mention's context words [n, d].

        A listed mention gets no entity but those of its list. `text` is what the mentions stand in.
        """
        surfaces = [surface[: LONGEST_NAME + 1] for surface in surfaces]  # longer ones are no names
        named, certain = Named.of(surfaces), _certain(firsts)
        document = np.array([*certain.values()], np.float32) @ self._vectors[[*certain]]
        pool = self._pool(surfaces, firsts, self._near(contexts, document, [*certain]), is_listed, pause)
        pause()
        self._measure(pool, firsts, contexts, document)
        pool = pool.take(_best(pool, by_prior=by_prior, by_score=CONSULTED))
        pause()
        self._consult(pool, named)
        pool = pool.take(_best(pool, by_prior=by_prior, by_score=by_score))
        pause()
        self._relate(pool, named, words_in(text, pause))
        is_source = pool.evidence[:, : len(SOURCES)] > 0
        return Kept(
            np.bincount(pool.mention, minlength=len(surfaces)),
            pool.entity,
            pool.evidence[:, PRIOR],
            pool.evidence[:, 1:] / _SPREAD_OF[1:],
            is_source.argmax(axis=1).astype(np.int8),
        )

    def _near(self, contexts: Floats, document: Floats, certain: Sequence[int]) -> tuple[Ints, Ints]:
        """Entities related to the document, rising, and the source of each."""
        by_words, by_entities = self._index.nearest(np.stack([contexts.sum(axis=0), document]), count=NEIGHBOURS)
        rows = [self._graph.row(entity)[0] for entity in certain if entity < len(self._graph)]
        linked, times = np.unique(np.concatenate([np.zeros(0, np.int32), *rows]), return_counts=True)
        by_links = linked[np.argsort(-times, kind="stable")][:MOST_LINKED]
        near = np.unique(np.concatenate([by_words, by_entities, by_links]))
        return near, np.where(np.isin(near, np.concatenate([by_entities, by_links])), DOCUMENT, CONTEXT)

    def _pool(
        self,
        surfaces: Sequence[str],
        firsts: Sequence[Sequence[PriorCandidate]],
        near: tuple[Ints, Ints],
        is_listed: Sequence[bool],
        pause: Pause,
    ) -> Pool:
        longer = _longer_names(surfaces, firsts)
        by_prior = [(i, PRIOR, each.entity_id, each.prior) for i, own in enumerate(firsts) for each in own]
        by_prior += [
            (i, LONGER_NAME, each.entity_id, each.prior)
            for i, others in enumerate(longer)
            for other in others
            for each in firsts[other]
        ]
        mention, column, entity, strength = zip(*by_prior, strict=True) if by_prior else ((), (), (), ())
        named = [self.names.find(surface) for surface in paced(surfaces, pause)]
        i, place, shared = self._sharing(surfaces, near[0])
        return _joined(
            (np.array(mention, np.int64), np.repeat(np.arange(len(named)), [len(each.kinds) for each in named]), i),
            (np.array(column, np.int64), *(NAME + each.kinds.astype(np.int64) for each in named), near[1][place]),
            (np.array(entity, np.int64), *(each.entities for each in named), near[0][place]),
            (np.array(strength, np.float32), *(each.strengths for each in named), shared),
            np.array(is_listed, bool),
        )

    def _sharing(self, surfaces: Sequence[str], near: Ints) -> tuple[Ints, Ints, Floats]:
        """Which of the entities have a word of a mention in their names: mention, place, share of the mention's letters."""
        words = [self.names.words_of(surface) for surface in surfaces]
        lists = np.concatenate([each.lists for each in words])
        mention = np.repeat(np.arange(len(words)), [len(each.lists) for each in words])
        letters = np.zeros((len(words), len(near)), np.float32)
        kernels.shared_letters(near, self.names.entities, *lists.T, mention, letters)
        i, place = np.nonzero(letters)
        totals = np.array([max(each.num_letters, 1) for each in words], np.float32)
        return i, place, letters[i, place] / totals[i]

    def _measure(
        self, pool: Pool, firsts: Sequence[Sequence[PriorCandidate]], contexts: Floats, document: Floats
    ) -> None:
        mention, entity, evidence = pool
        num_links = self._catalogue.num_links[entity]
        counts = np.concatenate([np.zeros(0), *([each.support for each in own] for own in firsts)])
        keys = np.array([(i << 32) | each.entity_id for i, own in enumerate(firsts) for each in own], np.int64)
        rows = np.searchsorted((mention << 32) | entity, keys)
        evidence[:, CONTEXT_FIT] = self._fit(_unit(contexts), mention, entity)
        evidence[:, DOCUMENT_FIT] = self._fit(_unit(document[None]), np.zeros_like(mention), entity)
        evidence[:, LINKS] = np.log1p(num_links) / 10
        totals = np.bincount(mention, num_links + 1, len(firsts))
        evidence[:, SHARE_OF_LINKS] = np.log((num_links + 1) / totals[mention]) / 10
        evidence[rows, COUNT] = np.log1p(counts) / 5
        evidence[rows, CALLED_SO] = np.minimum(counts / np.maximum(num_links[rows], 1), 1)

    def _fit(self, queries: Floats, which: Ints, entity: Ints) -> Floats:
        cosines = np.empty(len(entity), np.float32)
        row_dots(self._vectors, entity, queries, which, cosines)
        return cosines

    def _consult(self, pool: Pool, named: Named) -> None:
        """Compare each entity with what the other names of the document seem to mean, by their scores so far."""
        mention, entity, evidence = pool
        if len(mention):
            others = _meanings_of_others(self._vectors[entity], pool, named)
            evidence[:, DOCUMENT_FIT] = self._fit(others, named.name[mention], entity)

    def _relate(self, pool: Pool, named: Named, text_words: Ints) -> None:
        """What is dearer to know, about the few that are kept."""
        mention, entity, evidence = pool
        if not len(mention):
            return
        vectors = self._link_vectors.take(entity)
        others = _meanings_of_others(vectors, pool, named)
        evidence[:, LINK_FIT] = np.einsum("rk,rk->r", vectors, others[named.name[mention]])
        titles = self._catalogue.titles(entity)
        evidence[:, TITLES:] = compare_titles(mention, named, titles, _shares_of(pool), text_words)


# -- sources


def _certain(firsts: Sequence[Sequence[PriorCandidate]]) -> dict[int, float]:
    """The best entities by prior, and their priors."""
    best: dict[int, float] = {}
    for own in firsts:
        if own:
            best[own[0].entity_id] = max(own[0].prior, best.get(own[0].entity_id, 0.0))
    return best


def _longer_names(surfaces: Sequence[str], firsts: Sequence[Sequence[PriorCandidate]]) -> list[list[int]]:
    """For every mention, those with a longer name: it has all words of the mention, or the mention is its acronym."""
    known = {surface: i for i, surface in reversed([*enumerate(surfaces)]) if firsts[i]}
    words = {surface: _content_words(surface) for surface in surfaces}
    initials = {surface: _initials(surface) for surface in known}
    longer = {}
    for surface, own in words.items():
        acronym = acronym_of(surface)
        longer[surface] = [
            i for other, i in known.items() if (own and own < words[other]) or (acronym and acronym == initials[other])
        ]
    return [longer[surface] for surface in surfaces]


def _joined(
    mentions: Sequence[Ints],
    columns: Sequence[Ints],
    entities: Sequence[npt.NDArray[Any]],
    strengths: Sequence[Floats],
    is_listed: npt.NDArray[np.bool_],
) -> Pool:
    """A row for every mention and entity, with the strongest evidence of each source."""
    column = np.concatenate(columns)
    keys = (np.concatenate(mentions) << 32) | np.concatenate(entities)
    keys, place = np.unique(keys, return_inverse=True)
    evidence = np.zeros((len(keys), len(EVIDENCE)), np.float32)
    # a flat index: numpy takes five times as long with two
    np.maximum.at(evidence.reshape(-1), place * len(EVIDENCE) + column, np.concatenate(strengths))
    pool = Pool(keys >> 32, keys & 0xFFFFFFFF, evidence)
    if not is_listed.any():
        return pool
    is_first = np.zeros(len(keys), bool)
    is_first[place[column == PRIOR]] = True
    return pool.take(np.flatnonzero(is_first | ~is_listed[pool.mention]))


# -- scores


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    scores: Floats = evidence @ _WEIGHT_OF + _PRIOR_WEIGHT * log_prior(evidence[:, PRIOR])
    return scores


def _best(pool: Pool, *, by_prior: int, by_score: int) -> Ints:
    """Rows of each mention's best by prior, and of the best of the rest by score; by mention and falling prior."""
    kept = np.empty(len(pool.mention), np.int64)
    prior, scores = np.ascontiguousarray(pool.evidence[:, PRIOR]), score(pool.evidence)
    return kept[: kernels.keep_best(pool.mention, prior, scores, by_prior, by_score, kept)]


def _meanings_of_others(vectors: Floats, pool: Pool, named: Named) -> Floats:
    """For every distinct name, what the other names seem to mean, of unit length.

    `vectors` are those of the pool's rows. A name must not speak for itself, wherever it stands.
    """
    filled, starts = np.unique(pool.mention, return_index=True)
    meanings = np.zeros((len(named.name), vectors.shape[1]), np.float32)
    meanings[filled] = np.add.reduceat(_shares_of(pool)[:, None] * vectors, starts)
    by_name = np.zeros((int(named.name.max()) + 1, meanings.shape[1]), np.float32)
    np.add.at(by_name, named.name, meanings)
    return _unit(meanings.sum(axis=0) - by_name)


def _shares_of(pool: Pool) -> Floats:
    """How likely each row is among those of its mention, by its score so far."""
    return _shares(score(pool.evidence), np.unique(pool.mention, return_index=True)[1])


def _shares(scores: Floats, starts: Ints) -> Floats:
    """Softmax over the rows of each mention, which begin at `starts`."""
    lengths = np.diff(np.append(starts, len(scores)))
    weights = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), lengths))
    shares: Floats = (weights / np.repeat(np.add.reduceat(weights, starts), lengths)).astype(np.float32)
    return shares


def _unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
    return units


# -- names


@functools.lru_cache(maxsize=2**13)
def _content_words(name: str) -> frozenset[str]:
    return frozenset(form_of(name).words)


@functools.lru_cache(maxsize=2**12)
def _initials(name: str) -> str:
    return initials_of(name)
