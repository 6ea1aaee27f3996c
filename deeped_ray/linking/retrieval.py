"""Which entities a mention may mean: the step between the prior and the model. All sources go into one pool:

    prior         p(e|m) of the mention table, or a candidate list
    name: ...     entities with a name that contains, abbreviates, inflects or resembles the mention (`name_index`)
    longer name   what a longer name of the same document can mean: `Sox` after `Chicago White Sox`, `IAEA` after its name
    document      entities near what the document is certain of (FAISS), or linked from it, that share a word with the mention
    context       entities near the document's words (FAISS) that share a word with the mention

From the pool a mention keeps some by prior, and then those with the highest score, a weighted sum of the evidence. Titles
are compared for the best of them only, and then have a say in who is kept. The model's f is given the evidence too.
Everything here depends on the document alone, so that training, evaluation, command line and server see the same candidates.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.corpus.priors import Senses
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.link_vectors import LinkVectors
from deeped_ray.embeddings.name_forms import LONGEST_NAME
from deeped_ray.embeddings.name_index import KINDS
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking import choice_kernels, fit_kernels, near_kernels, pool_kernels, title_kernels
from deeped_ray.linking.encoding import Floats, Ints, Kept, log_prior
from deeped_ray.linking.known_names import KnownNames
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.title_evidence import TITLE_MEASURES, TitleWords, words_in

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
    "rest in text": 1.0,
    "siblings": 3.0,
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
_WEIGHTS_OF_ALL = np.append(_WEIGHT_OF, _PRIOR_WEIGHT)
AT_ONCE = 25
"""Mentions whose pools are gathered between two pauses."""
CONSULTED = 24
"""Entities of a mention that say what it seems to mean, at most."""
COMPARED = 16
"""Entities of a mention whose titles are compared, beside those by prior, at most."""
NEIGHBOURS = 100
"""Entities nearest to the document's words, and to its entities, that are looked through for the words of a mention."""
MOST_LINKED = 400
"""Entities linked from those of the document that are looked through, at most: those with most such links."""


Firsts = tuple[Ints, Ints, Floats, npt.NDArray[np.float64]]
"""Candidates by prior, one mention after the other: where those of each begin; entities, priors and counts."""


class Retriever:
    """Finds candidates for all mentions of a document at once."""

    def __init__(
        self,
        names: KnownNames,
        index: EntityIndex,
        graph: WordCounts,
        catalogue: Catalogue,
        *,
        entity_vectors: Layers,
        link_vectors: LinkVectors,
    ) -> None:
        self.names, self._index, self._graph = names, index, graph
        self._catalogue, self._vectors, self._link_vectors = catalogue, entity_vectors, link_vectors
        self._title_words = TitleWords(catalogue.title)

    def candidates(
        self,
        surfaces: Sequence[str],
        firsts: Sequence[Senses],
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
        n = len(surfaces)
        names, slots = self.names.take([surface[: LONGEST_NAME + 1] for surface in surfaces], pause)  # longer: no names
        by_slot = numbered(slots.tolist())
        vectors, flat = (self._vectors.own, self._vectors.extra), _flat_firsts(firsts)
        near, sources, document = self._near(flat, contexts)
        pause()
        letters = np.zeros((n, len(near)), np.float32)
        near_kernels.shared_letters(slots, names.listed, names.lists, near, self.names.index.entities, letters)
        starts, longer = np.zeros(n + 1, np.int64), np.empty(n * n, np.int64)
        words = (names.contained, names.content, names.initials, names.acronym)
        near_kernels.longer_names(slots, *words, flat[0], starts, longer)
        pause()
        rows = Rows.empty(n * (by_prior + CONSULTED))
        given = (
            flat,
            (starts, longer),
            (slots, names.matched, names.entity, names.kind, names.strength, names.num_letters),
            (near, sources, letters, np.array(is_listed, np.bool_)),
            vectors,
            contexts,
            document,
            self._catalogue.num_links,
            (PRIOR, NAME, LONGER_NAME, CONTEXT_FIT),
            _WEIGHTS_OF_ALL,
            by_prior,
            CONSULTED,
        )
        number = 0
        for start in range(0, n, AT_ONCE):
            number += pool_kernels.gather(start, min(start + AT_ONCE, n), *given, rows.rest(number))
            pause()
        rows = rows.first(number)
        if not number:
            return rows.kept()
        best = np.empty(number, np.int64)
        compared = max(by_score, COMPARED)
        count = fit_kernels.consult(*rows, by_slot, vectors, CONTEXT_FIT, _WEIGHTS_OF_ALL, by_prior, compared, best)
        rows = rows.take(best[:count])
        pause()
        shares = np.empty(count, np.float32)
        fit_kernels.relate(*rows, by_slot, self._link_vectors.halves, LINK_FIT, shares)
        title_kernels.compare_titles(
            *(rows.mention, names.titles, names.titled[slots], *self._title_words.take(rows.entity)),
            *(words_in(text, pause), by_slot, shares, rows.evidence[:, TITLES:]),
        )
        count = choice_kernels.choose(*rows, _WEIGHTS_OF_ALL, by_prior, by_score, best)
        return rows.take(best[:count]).kept()

    def _near(self, firsts: Firsts, contexts: Floats) -> tuple[Ints, Ints, Floats]:
        """Entities related to the document, rising, the source of each, and the document's vector, of unit length."""
        queries, document = np.zeros((2, contexts.shape[1]), np.float32), np.empty(contexts.shape[1], np.float32)
        vectors, graph = (self._vectors.own, self._vectors.extra), (self._graph.offsets, self._graph.words)
        linked = near_kernels.certain_of(firsts, contexts, vectors, graph, queries, document)
        linked.sort()
        by_words, by_entities = self._index.nearest(queries, count=NEIGHBOURS)
        by_links = np.empty(len(linked), np.int64)
        by_links = by_links[: near_kernels.most_linked(linked, MOST_LINKED, by_links)]
        near, source = np.empty((2, len(by_words) + len(by_entities) + len(by_links)), np.int64)
        by_words.sort()
        others = np.sort(np.concatenate([by_entities, by_links]))
        number = near_kernels.merge_sources(by_words, CONTEXT, others, DOCUMENT, near, source)
        return near[:number], source[:number], document


class Rows(NamedTuple):
    """Entities of the mentions of a document, by mention."""

    mention: Ints
    entity: Ints
    evidence: Floats
    """A column for each of EVIDENCE."""
    scores: Floats

    @classmethod
    def empty(cls, number: int) -> "Rows":
        evidence, scores = np.empty((number, len(EVIDENCE)), np.float32), np.empty(number, np.float32)
        return cls(np.empty(number, np.int64), np.empty(number, np.int64), evidence, scores)

    def first(self, number: int) -> "Rows":
        return self.take(slice(number))

    def rest(self, number: int) -> "Rows":
        return self.take(slice(number, None))

    def take(self, rows: Ints | slice) -> "Rows":
        return Rows(self.mention[rows], self.entity[rows], self.evidence[rows], self.scores[rows])

    def kept(self) -> Kept:
        return Kept(self.mention, self.entity, self.evidence, _SPREAD_OF, len(SOURCES))


def numbered(names: Sequence[Hashable]) -> Ints:
    """Of every mention the number of its name: mentions that are written alike have the same."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in names], np.int64)


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    scores: Floats = evidence @ _WEIGHT_OF + _PRIOR_WEIGHT * log_prior(evidence[:, PRIOR])
    return scores


def _flat_firsts(firsts: Sequence[Senses]) -> Firsts:
    return (
        _starts(firsts),
        np.concatenate([each.entity for each in firsts], dtype=np.int64),
        np.concatenate([each.prior for each in firsts], dtype=np.float32, casting="same_kind"),
        np.concatenate([each.support for each in firsts], dtype=np.float64),
    )


def _starts(firsts: Sequence[Senses]) -> Ints:
    starts = np.zeros(len(firsts) + 1, np.int64)
    np.cumsum([len(each.entity) for each in firsts], out=starts[1:])
    return starts
