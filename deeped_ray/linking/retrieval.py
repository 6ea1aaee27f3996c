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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.name_index import KINDS, LONGEST_NAME, NameIndex, acronym_of, fold, form_of, initials_of
from deeped_ray.linking import kernels
from deeped_ray.linking.encoding import Floats, Ints, log_prior
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.text import bare_title

SOURCES = ("prior", *(f"name: {kind}" for kind in KINDS), "longer name", "document", "context")
"""Where a candidate can come from. If several sources have it, the first of them is named."""
MEASURES = (
    "context fit",  # cosine with the mention's context words
    "document fit",  # cosine with what the other mentions seem to mean
    "links",  # logarithm of the links to the entity
    "share of links",  # logarithm of its share among the links to all entities of the pool
    "count",  # logarithm of the links from this mention to the entity
    "called so",  # share of the entity's links that have this mention as their text
    "mention in title",  # letters of the mention's words that stand in the title, as a share of the mention
    "title in mention",  # and as a share of the title
)
"""What else is known about a candidate."""
EVIDENCE = (*SOURCES, *MEASURES)
NUM_EVIDENCE = len(EVIDENCE) - 1
"""What f is given beside the prior, which it always has."""
PRIOR, NAME, LONGER_NAME, DOCUMENT, CONTEXT = 0, 1, *range(1 + len(KINDS), len(SOURCES))
CONTEXT_FIT, DOCUMENT_FIT, LINKS, SHARE_OF_LINKS, COUNT, CALLED_SO, MENTION_IN_TITLE, TITLE_IN_MENTION = range(
    len(SOURCES), len(EVIDENCE)
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
    """Without the prior."""
    sources: npt.NDArray[np.int8]
    """Places in SOURCES."""


class Retriever:
    """Finds candidates for all mentions of a document at once."""

    def __init__(
        self, names: NameIndex, index: EntityIndex, graph: WordCounts, catalogue: Catalogue, entity_vectors: Floats
    ) -> None:
        self.names, self._index, self._graph = names, index, graph
        self._catalogue, self._vectors = catalogue, entity_vectors

    def candidates(
        self,
        surfaces: Sequence[str],
        firsts: Sequence[Sequence[PriorCandidate]],
        contexts: Floats,
        is_listed: Sequence[bool],
        *,
        by_prior: int,
        by_score: int,
        pause: Pause = no_pause,
    ) -> Kept:
        """`firsts` are candidates by prior, `contexts` the sums of each mention's context words [n, d].

        A listed mention gets no entity but those of its list.
        """
        surfaces = [surface[: LONGEST_NAME + 1] for surface in surfaces]  # longer ones are no names
        certain = _certain(firsts)
        document = np.array([*certain.values()], np.float32) @ self._vectors[[*certain]]
        pool = self._pool(surfaces, firsts, self._near(contexts, document, [*certain]), is_listed, pause)
        self._measure(pool, firsts, contexts, document)
        pool = pool.take(_best(pool, len(surfaces), by_prior=by_prior, by_score=CONSULTED))
        self._consult(pool, surfaces)
        pool = pool.take(_best(pool, len(surfaces), by_prior=by_prior, by_score=by_score))
        _compare_titles(pool, surfaces, self._catalogue.titles(pool.entity))
        is_source = pool.evidence[:, : len(SOURCES)] > 0
        return Kept(
            np.bincount(pool.mention, minlength=len(surfaces)),
            pool.entity,
            pool.evidence[:, PRIOR],
            pool.evidence[:, 1:],
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
        found = _Found()
        longer = _longer_names(surfaces, firsts)
        for i, surface in enumerate(paced(surfaces, pause)):
            found.add_prior(i, PRIOR, firsts[i])
            for other in longer[i]:
                found.add_prior(i, LONGER_NAME, firsts[other])
            named, related = self.names.find(surface), self.names.sharing(surface, near[0])
            found.add(i, NAME + named.kinds.astype(np.int64), named.entities, named.strengths)
            found.add(i, near[1][np.searchsorted(near[0], related.entities)], related.entities, related.strengths)
        return found.pool(np.array(is_listed, bool))

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
        kernels.row_dots(self._vectors, entity, queries, which, cosines)
        return cosines

    def _consult(self, pool: Pool, surfaces: Sequence[str]) -> None:
        """Compare each entity with what the other names of the document seem to mean, by their scores so far."""
        mention, entity, evidence = pool
        if not len(mention):
            return
        filled, starts = np.unique(mention, return_index=True)
        meanings = np.zeros((len(surfaces), self._vectors.shape[1]), np.float32)
        shares = _shares(score(evidence), starts)
        meanings[filled] = np.add.reduceat(shares[:, None] * self._vectors[entity], starts)
        # a name must not speak for itself, wherever it stands
        _, name = np.unique(surfaces, return_inverse=True)
        by_name = np.zeros((int(name.max()) + 1, meanings.shape[1]), np.float32)
        np.add.at(by_name, name, meanings)
        others = meanings.sum(axis=0) - by_name
        evidence[:, DOCUMENT_FIT] = self._fit(_unit(others), name[mention], entity)


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


class _Found:
    """What the sources say: mention, column, entity, strength."""

    def __init__(self) -> None:
        self._mentions: list[int] = []
        self._columns: list[Ints] = []
        self._entities: list[Ints] = []
        self._strengths: list[Floats] = []

    def add(self, mention: int, columns: Ints, entities: npt.NDArray[Any], strengths: Floats) -> None:
        if len(entities):
            self._mentions.append(mention)
            self._columns.append(columns)
            self._entities.append(entities.astype(np.int64))
            self._strengths.append(strengths)

    def add_prior(self, mention: int, column: int, candidates: Sequence[PriorCandidate]) -> None:
        entities = np.array([each.entity_id for each in candidates], np.int64)
        priors = np.array([each.prior for each in candidates], np.float32)
        self.add(mention, np.full(len(entities), column), entities, priors)

    def pool(self, is_listed: npt.NDArray[np.bool_]) -> Pool:
        """A row for every mention and entity, with the strongest evidence of each source."""
        if not self._mentions:
            nothing = np.zeros(0, np.int64)
            return Pool(nothing, nothing, np.zeros((0, len(EVIDENCE)), np.float32))
        mentions = np.repeat(self._mentions, [len(columns) for columns in self._columns]).astype(np.int64)
        entities = np.concatenate(self._entities)
        columns = np.concatenate(self._columns)
        keys, place = np.unique((mentions << 32) | entities, return_inverse=True)
        evidence = np.zeros((len(keys), len(EVIDENCE)), np.float32)
        np.maximum.at(evidence, (place, columns), np.concatenate(self._strengths))
        pool = Pool(keys >> 32, keys & 0xFFFFFFFF, evidence)
        is_first = np.zeros(len(keys), bool)
        is_first[place[columns == PRIOR]] = True
        return pool.take(np.flatnonzero(is_first | ~is_listed[pool.mention]))


# -- scores


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    scores: Floats = evidence @ _WEIGHT_OF + _PRIOR_WEIGHT * log_prior(evidence[:, PRIOR])
    return scores


def _best(pool: Pool, num_mentions: int, *, by_prior: int, by_score: int) -> Ints:
    """Rows of each mention's best by prior, and of the best of the rest by score; by mention and falling prior."""
    prior, scores = pool.evidence[:, PRIOR], score(pool.evidence)
    order = np.lexsort((pool.entity, -scores, -prior, pool.mention))
    is_first = (_rank(pool.mention[order]) < by_prior) & (prior[order] > 0)
    rest = order[~is_first]
    rest = rest[np.lexsort((pool.entity[rest], -scores[rest], pool.mention[rest]))]
    room = by_prior + by_score - np.bincount(pool.mention[order[is_first]], minlength=num_mentions)
    is_kept = np.zeros(len(order), bool)
    is_kept[order[is_first]] = True
    is_kept[rest[_rank(pool.mention[rest]) < room[pool.mention[rest]]]] = True
    kept: Ints = order[is_kept[order]]
    return kept


def _rank(mention: Ints) -> Ints:
    """Place of each row among those of its mention; rows come by mention."""
    ranks: Ints = np.arange(len(mention)) - np.searchsorted(mention, mention)
    return ranks


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


def _compare_titles(pool: Pool, surfaces: Sequence[str], titles: Sequence[str]) -> None:
    words = [_words(surface) for surface in surfaces]
    for row, (i, title) in enumerate(zip(pool.mention.tolist(), titles, strict=True)):
        ours, theirs = words[i], _words(title)
        common = sum(map(len, ours & theirs))
        if common:
            pool.evidence[row, MENTION_IN_TITLE] = common / sum(map(len, ours))
            pool.evidence[row, TITLE_IN_MENTION] = common / sum(map(len, theirs))


def _remembered(function: Callable[[str], frozenset[str]]) -> Callable[[str], frozenset[str]]:
    return functools.lru_cache(maxsize=2**13)(function)


@_remembered
def _words(name: str) -> frozenset[str]:
    return frozenset(fold(bare_title(name)).split())


@_remembered
def _content_words(name: str) -> frozenset[str]:
    return frozenset(form_of(name).words)


@functools.lru_cache(maxsize=2**12)
def _initials(name: str) -> str:
    return initials_of(name)
