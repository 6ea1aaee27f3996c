"""Which entities a mention may mean, from all sources, with the evidence for each: between the prior and the model.

    prior      p(e|m) of the mention table
    name       an entity with a name that contains, abbreviates, inflects or resembles the mention (`name_index`)
    document   an entity that a longer name of the document means; or one that is related to what the document is certain
               of (FAISS, hyperlinks) and shares a word with the mention
    context    an entity near the document's words (FAISS) that shares a word with the mention

All sources are merged into one pool for each mention. `kept_by_prior` are kept by prior, the others by a score that adds
up the evidence (SCORE). The model's f is given the evidence, too.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.name_index import KINDS, NameIndex, acronym_of, fold, form_of, initials_of
from deeped_ray.linking.encoding import MIN_PRIOR
from deeped_ray.text import bare_title

SOURCES = ("prior", *(f"name: {kind}" for kind in KINDS), "document", "context", "longer name")
"""Where a candidate can come from. The first of several is named."""
# columns of evidence: the sources first, then what is computed for the whole pool
PRIOR, NAMES = 0, 1
NEAR_DOCUMENT, NEAR_CONTEXT, HANDED = range(1 + len(KINDS), 4 + len(KINDS))
CONTEXT, DOCUMENT, NEARBY, GRAPH, LINKS, KNOWN, CALLED, SUPPORT, MENTION_IN_TITLE, TITLE_IN_MENTION = range(
    len(SOURCES), len(SOURCES) + 10
)
NUM_COLUMNS = len(SOURCES) + 10
NUM_EVIDENCE = NUM_COLUMNS - 1
"""All but the prior, which f always sees."""
NEIGHBOURS = 100
"""Entities nearest to the document's entities, and to its words, that are looked through for the words of a mention."""
MOST_LINKED = 400
# fitted by softmax regression of the gold entity in the pools of AIDA train and of held-out links
SCORE = {
    "prior": 3.4, "name: words": 3.0, "name: initials": 0.9, "name: inflection": 0.4, "name: typo": 1.6, "name: part": 2.1,
    "document": 0.4, "context": 0.4, "longer name": 2.1,
}
CONTEXT_SCORE, DOCUMENT_SCORE, NEARBY_SCORE, LINKS_SCORE, CALLED_SCORE = 11.0, 3.6, 2.0, 2.8, 0.0
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Pool(NamedTuple):
    """Entities of all mentions; by mention, then by entity."""

    mention: Ints
    entity: Ints
    evidence: Floats
    """[N, NUM_COLUMNS]"""


class Retriever:
    def __init__(
        self,
        names: NameIndex,
        index: EntityIndex,
        graph: WordCounts,
        catalogue: Catalogue,
        entity_vectors: Floats,
    ) -> None:
        self._names, self._index, self._graph = names, index, graph
        self._catalogue, self._vectors = catalogue, entity_vectors
        self._log_links = np.log1p(catalogue.num_links).astype(np.float32) / 10

    def pool(
        self,
        surfaces: Sequence[str],
        firsts: Sequence[Sequence[PriorCandidate]],
        contexts: Floats,
        is_listed: Sequence[bool],
    ) -> Pool:
        """`contexts` are the sums of each mention's context words. Listed mentions get nothing but their list."""
        certain, shares = _certain(firsts)
        document = shares @ self._vectors[certain]
        linked, times = self._linked(certain)
        by_words, by_entities = self._index.nearest(np.stack([contexts.sum(axis=0), document]), count=NEIGHBOURS)
        by_links = linked[np.argsort(-times, kind="stable")][:MOST_LINKED]
        related = np.unique(np.concatenate([by_entities, by_links]))
        near = np.union1d(related, by_words)
        column_of = np.where(np.isin(near, related), NEAR_DOCUMENT, NEAR_CONTEXT)
        rows: list[tuple[int, Ints, Ints | int, Floats | float]] = []
        handed = _handed(surfaces, firsts)
        for i, surface in enumerate(surfaces):
            own = firsts[i]
            rows.append((i, _ids(own), PRIOR, np.array([c.prior for c in own], np.float32)))
            found = self._names.find(surface)
            rows.append((i, found.entities.astype(np.int64), NAMES + found.kinds.astype(np.int64), found.strengths))
            shared = self._names.sharing(surface, near)
            columns = column_of[np.searchsorted(near, shared.entities)]
            rows.append((i, shared.entities.astype(np.int64), columns, shared.strengths))
            for longer in handed[i]:
                rows.append((i, _ids(firsts[longer]), HANDED, np.array([c.prior for c in firsts[longer]], np.float32)))
        pool = _merge(rows, is_listed)
        self._complete(pool, surfaces, firsts, contexts, document, linked, times)
        return pool

    def _linked(self, certain: Ints) -> tuple[Ints, Ints]:
        """Entities that the certain ones link to, rising, and how many do."""
        rows = [self._graph.row(entity)[0] for entity in certain.tolist() if entity < len(self._graph)]
        linked, times = np.unique(np.concatenate([np.zeros(0, np.int32), *rows]), return_counts=True)
        return linked.astype(np.int64), times

    def _complete(
        self, pool: Pool, surfaces, firsts, contexts, document, linked, times
    ) -> None:
        evidence, mention, entity = pool.evidence, pool.mention, pool.entity
        vectors = self._vectors[entity]
        evidence[:, CONTEXT] = np.einsum("nd,nd->n", vectors, _unit(contexts)[mention])
        if len(linked):
            places = np.minimum(np.searchsorted(linked, entity), len(linked) - 1)
            counts = np.where(linked[places] == entity, times[places], 0)
            evidence[:, GRAPH] = np.log1p(counts) / 3
        is_own = entity < len(self._log_links)
        evidence[is_own, LINKS] = self._log_links[entity[is_own]]
        evidence[:, KNOWN] = np.array([any(c.prior for c in own) for own in firsts], np.float32)[mention]
        support = np.concatenate([np.zeros(0), *([c.support for c in own] for own in firsts)])
        keys = np.concatenate([(i << 32) | _ids(own) for i, own in enumerate(firsts)])
        rows = np.searchsorted((mention << 32) | entity, keys)
        evidence[rows, SUPPORT] = np.log1p(support) / 5
        links = self._catalogue.num_links[entity[rows]]
        evidence[rows, CALLED] = np.minimum(support / np.maximum(links, 1), 1)
        evidence[:, DOCUMENT] = vectors @ (document / (np.linalg.norm(document) or 1))
        self._consult(evidence, mention, vectors, surfaces)

    def _consult(self, evidence: Floats, mention: Ints, vectors: Floats, surfaces: Sequence[str]) -> None:
        """What the other mentions of the document mean, by their scores: a first guess at belief propagation."""
        n = len(surfaces)
        _, name = np.unique(surfaces, return_inverse=True)
        is_other = (name[:, None] != name[None, :]).astype(np.float32)
        distance = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).astype(np.float32)
        filled, starts = np.unique(mention, return_index=True)
        for _ in range(2 if len(mention) else 0):
            shares = _softmax(score(evidence), mention, n)
            meanings = np.zeros((n, vectors.shape[1]), np.float32)
            meanings[filled] = np.add.reduceat(shares[:, None] * vectors, starts)
            for column, weights in ((DOCUMENT, is_other), (NEARBY, is_other * np.exp(-distance / 3))):
                evidence[:, column] = np.einsum("nd,nd->n", vectors, _unit(weights @ meanings)[mention])


def _softmax(scores: Floats, mention: Ints, n: int) -> Floats:
    highest = np.full(n, -np.inf, np.float32)
    np.maximum.at(highest, mention, scores)
    weights = np.exp(scores - highest[mention])
    return weights / np.bincount(mention, weights, n)[mention].astype(np.float32)


def _certain(firsts: Sequence[Sequence[PriorCandidate]]) -> tuple[Ints, Floats]:
    """The best entity by prior of every mention, and its prior."""
    best: dict[int, float] = {}
    for own in firsts:
        if own:
            best[own[0].entity_id] = max(own[0].prior, best.get(own[0].entity_id, 0.0))
    return np.array(list(best), np.int64), np.array(list(best.values()), np.float32)


def _handed(surfaces: Sequence[str], firsts: Sequence[Sequence[PriorCandidate]]) -> list[list[int]]:
    """For every mention the mentions with a longer name: one that has its words, or that it abbreviates."""
    distinct: dict[str, int] = {}
    for i, surface in enumerate(surfaces):
        if firsts[i]:
            distinct.setdefault(surface, i)
    words = {surface: frozenset(form_of(surface).words) for surface in {*surfaces}}
    initials = {surface: initials_of(surface) for surface in distinct}
    longer = {
        surface: [
            i
            for other, i in distinct.items()
            if (own and own < words[other]) or (len(acronym) > 1 and acronym == initials[other])
        ]
        for surface, own in words.items()
        for acronym in [acronym_of(surface)]
    }
    return [longer[surface] for surface in surfaces]


def _ids(candidates: Sequence[PriorCandidate]) -> Ints:
    return np.array([candidate.entity_id for candidate in candidates], np.int64)


def _merge(rows, is_listed: Sequence[bool]) -> Pool:
    """One row for every mention and entity, with the strongest evidence of each kind."""
    rows = [row for row in rows if row[2] is PRIOR or True]
    mention = np.concatenate([np.full(len(e), i, np.int64) for i, e, _, _ in rows])
    entity = np.concatenate([e for _, e, _, _ in rows])
    column = np.concatenate([np.broadcast_to(c, len(e)) for _, e, c, _ in rows])
    value = np.concatenate([v for *_, v in rows]).astype(np.float32)
    keys, place = np.unique((mention << 32) | entity, return_inverse=True)
    evidence = np.zeros((len(keys), NUM_COLUMNS), np.float32)
    np.maximum.at(evidence, (place, column), value)
    listed = np.zeros(len(keys), bool)
    listed[place[column == PRIOR]] = True
    is_kept = listed | ~np.array(is_listed, bool)[keys >> 32]
    return Pool((keys >> 32)[is_kept], (keys & 0xFFFFFFFF)[is_kept], evidence[is_kept])


def _unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    weights = np.zeros(NUM_COLUMNS, np.float32)
    for source, weight in SCORE.items():
        weights[SOURCES.index(source)] = weight
    weights[[CONTEXT, DOCUMENT, NEARBY, LINKS, CALLED]] = CONTEXT_SCORE, DOCUMENT_SCORE, NEARBY_SCORE, LINKS_SCORE, CALLED_SCORE
    weights[PRIOR] = 0
    log_prior = 1 + np.log(np.maximum(evidence[:, PRIOR], np.float32(MIN_PRIOR))) / 7
    scores: Floats = evidence @ weights + np.float32(SCORE["prior"]) * log_prior
    return scores


class Kept(NamedTuple):
    """Candidates of all mentions, by mention."""

    counts: Ints
    entity: Ints
    prior: Floats
    evidence: Floats
    sources: npt.NDArray[np.int8]


def keep(pool: Pool, surfaces: Sequence[str], titles_of, *, by_prior: int, by_score: int) -> Kept:
    """The best by prior, then the best of the rest by score; by falling prior."""
    num_mentions = len(surfaces)
    prior, scores = pool.evidence[:, PRIOR], score(pool.evidence)
    by = np.lexsort((pool.entity, -scores, -prior, pool.mention))
    is_best = (_rank(pool.mention[by]) < by_prior) & (prior[by] > 0)
    chosen, rest = by[is_best], by[~is_best]
    rest = rest[np.lexsort((pool.entity[rest], -scores[rest], pool.mention[rest]))]
    room = by_prior + by_score - np.bincount(pool.mention[chosen], minlength=num_mentions)
    rest = rest[_rank(pool.mention[rest]) < room[pool.mention[rest]]]
    rows = np.concatenate([chosen, rest])
    rows = rows[np.lexsort((pool.entity[rows], -scores[rows], -prior[rows], pool.mention[rows]))]
    evidence = pool.evidence[rows]
    evidence[:, [MENTION_IN_TITLE, TITLE_IN_MENTION]] = _title_shares(surfaces, pool.mention[rows], titles_of(pool.entity[rows]))
    return Kept(
        np.bincount(pool.mention[rows], minlength=num_mentions),
        pool.entity[rows],
        evidence[:, PRIOR],
        evidence[:, 1:],
        (evidence[:, : len(SOURCES)] > 0).argmax(axis=1).astype(np.int8),
    )


def _rank(mention: Ints) -> Ints:
    """Place of each row among those of its mention; rows come by mention."""
    ranks: Ints = np.arange(len(mention)) - np.searchsorted(mention, mention)
    return ranks


def _title_shares(surfaces: Sequence[str], mention: Ints, titles: Sequence[str]) -> Floats:
    """How much of the mention's letters stand in the title, and how much of the title's in the mention."""
    words = [_words(surface) for surface in surfaces]
    shares = np.zeros((len(titles), 2), np.float32)
    for row, (i, title) in enumerate(zip(mention.tolist(), titles, strict=True)):
        ours, theirs = words[i], _words(title)
        common = sum(len(word) for word in ours if word in theirs)
        shares[row] = common / (sum(map(len, ours)) or 1), common / (sum(map(len, theirs)) or 1)
    return shares


@functools.lru_cache(maxsize=2**15)
def _words(name: str) -> frozenset[str]:
    return frozenset(fold(bare_title(name)).split())
