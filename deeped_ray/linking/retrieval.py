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

import functools
from collections.abc import Sequence, Sized
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.cooccurrence import WordCounts
from deeped_ray.corpus.priors import Senses
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.embeddings.link_vectors import LinkVectors
from deeped_ray.embeddings.name_forms import LONGEST_NAME, acronym_of, form_of, initials_of
from deeped_ray.embeddings.name_index import KINDS, REMEMBERED, Matches, NamedWords, NameIndex
from deeped_ray.knowledge.layers import Layers
from deeped_ray.linking import retrieval_kernels as kernels
from deeped_ray.linking.encoding import Floats, Ints, Kept, log_prior
from deeped_ray.linking.pace import Pause, no_pause, paced
from deeped_ray.linking.title_evidence import TITLE_MEASURES, TitleWords, compare_titles, words_in, words_of_name

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


class Surface(NamedTuple):
    """What is known of a mention by its name alone."""

    matches: Matches
    words: NamedWords
    content: frozenset[str]
    initials: str
    acronym: str
    title_words: Ints
    """As titles have them: see `title_evidence`."""


class Retriever:
    """Finds candidates for all mentions of a document at once."""

    def __init__(
        self,
        names: NameIndex,
        index: EntityIndex,
        graph: WordCounts,
        catalogue: Catalogue,
        *,
        entity_vectors: Layers,
        link_vectors: LinkVectors,
    ) -> None:
        self.names, self._index, self._graph = names, index, graph
        self._catalogue, self._vectors, self._link_vectors = catalogue, entity_vectors, link_vectors
        # the same names and entities come again and again
        self._surface = functools.lru_cache(maxsize=REMEMBERED)(self._know)
        self._title_words = TitleWords(catalogue.title)

    def _know(self, surface: str) -> Surface:
        return Surface(
            self.names.find(surface),
            self.names.words_of(surface),
            frozenset(form_of(surface).words),
            initials_of(surface),
            acronym_of(surface),
            words_of_name(surface),
        )

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
        surfaces = [surface[: LONGEST_NAME + 1] for surface in surfaces]  # longer ones are no names
        known = [self._surface(surface) for surface in paced(surfaces, pause)]
        name = numbered(surfaces)
        certain = _certain(firsts)
        document = np.array([*certain.values()], np.float32) @ self._vectors[[*certain]]
        near, sources = self._near(contexts, document, [*certain])
        pause()
        letters, num_letters = self._shared_letters(known, near)
        pause()
        vectors = (self._vectors.own, self._vectors.extra)
        rows = Rows.empty(len(surfaces) * (by_prior + CONSULTED))
        longer = _longer_names(surfaces, known, firsts)
        given = (
            _flat_firsts(firsts),
            (_starts(longer), np.array([each for others in longer for each in others], np.int64)),
            _flat_names(known),
            (near, sources, letters, num_letters, np.array(is_listed, np.bool_)),
            vectors,
            contexts,
            _unit(document),
            self._catalogue.num_links,
            (PRIOR, NAME, LONGER_NAME, CONTEXT_FIT),
            _WEIGHTS_OF_ALL,
            by_prior,
            CONSULTED,
        )
        number = 0
        for start in range(0, len(surfaces), AT_ONCE):
            number += kernels.gather(start, min(start + AT_ONCE, len(surfaces)), *given, rows.rest(number))
            pause()
        rows = rows.first(number)
        if not number:
            return rows.kept()
        best = np.empty(number, np.int64)
        compared = max(by_score, COMPARED)
        count = kernels.consult(*rows, name, vectors, CONTEXT_FIT, _WEIGHTS_OF_ALL, by_prior, compared, best)
        rows = rows.take(best[:count])
        pause()
        shares = np.empty(count, np.float32)
        kernels.relate(*rows, name, self._link_vectors.halves, LINK_FIT, shares)
        titles = self._title_words.take(rows.entity)
        own_words = [each.title_words for each in known]
        words = words_in(text, pause)
        compare_titles(rows.mention, name, own_words, titles, shares, words, rows.evidence[:, TITLES:])
        count = kernels.choose(*rows, _WEIGHTS_OF_ALL, by_prior, by_score, best)
        return rows.take(best[:count]).kept()

    def _near(self, contexts: Floats, document: Floats, certain: Sequence[int]) -> tuple[Ints, Ints]:
        """Entities related to the document, rising, and the source of each."""
        by_words, by_entities = self._index.nearest(np.stack([contexts.sum(axis=0), document]), count=NEIGHBOURS)
        rows = [self._graph.row(entity)[0] for entity in certain if entity < len(self._graph)]
        linked = np.sort(np.concatenate([np.zeros(0, np.int32), *rows]))
        by_links = np.empty(len(linked), np.int64)
        by_links = by_links[: kernels.most_linked(linked, MOST_LINKED, by_links)]
        near, source = np.empty((2, len(by_words) + len(by_entities) + len(by_links)), np.int64)
        by_words.sort()
        others = np.sort(np.concatenate([by_entities, by_links]))
        number = kernels.merge_sources(by_words, CONTEXT, others, DOCUMENT, near, source)
        return near[:number], source[:number]

    def _shared_letters(self, known: Sequence[Surface], near: Ints) -> tuple[Floats, Floats]:
        """Letters of each mention's words that the names of the entities have, [mentions, near], and of all its words."""
        lists = np.concatenate([each.words.lists for each in known])
        mention = np.repeat(np.arange(len(known)), [len(each.words.lists) for each in known])
        letters = np.zeros((len(known), len(near)), np.float32)
        kernels.shared_letters(near, self.names.entities, *lists.T, mention, letters)
        return letters, np.array([max(each.words.num_letters, 1) for each in known], np.float32)


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


def numbered(surfaces: Sequence[str]) -> Ints:
    """Of every mention the number of its name: mentions that are written alike have the same."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in surfaces], np.int64)


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    scores: Floats = evidence @ _WEIGHT_OF + _PRIOR_WEIGHT * log_prior(evidence[:, PRIOR])
    return scores


def _certain(firsts: Sequence[Senses]) -> dict[int, float]:
    """The best entities by prior, and their priors."""
    best: dict[int, float] = {}
    for own in firsts:
        if len(own):
            entity, prior = int(own.entity[0]), float(own.prior[0])
            best[entity] = max(prior, best.get(entity, 0.0))
    return best


def _flat_firsts(firsts: Sequence[Senses]) -> tuple[Ints, Ints, Floats, npt.NDArray[np.float64]]:
    return (
        _starts(firsts),
        np.concatenate([each.entity for each in firsts], dtype=np.int64),
        np.concatenate([each.prior for each in firsts], dtype=np.float32, casting="same_kind"),
        np.concatenate([each.support for each in firsts], dtype=np.float64),
    )


def _flat_names(known: Sequence[Surface]) -> tuple[Ints, npt.NDArray[np.int32], npt.NDArray[np.int8], Floats]:
    matches = [each.matches for each in known]
    return (
        _starts([each.entities for each in matches]),
        np.concatenate([each.entities for each in matches]),
        np.concatenate([each.kinds for each in matches]),
        np.concatenate([each.strengths for each in matches]),
    )


def _starts(rows: Sequence[Sized]) -> Ints:
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([*map(len, rows)], out=starts[1:])
    return starts


def _unit(vector: Floats) -> Floats:
    norm = np.linalg.norm(vector)
    unit: Floats = (vector / (norm if norm > 0 else 1)).astype(np.float32)
    return unit


def _longer_names(surfaces: Sequence[str], known: Sequence[Surface], firsts: Sequence[Senses]) -> list[list[int]]:
    """For every mention, those with a longer name: it has all words of the mention, or the mention is its acronym."""
    first = {surface: i for i, surface in reversed([*enumerate(surfaces)]) if len(firsts[i])}
    longer: dict[str, list[int]] = {}
    for surface, own in zip(surfaces, known, strict=True):
        if surface not in longer:
            words, acronym = own.content, own.acronym
            longer[surface] = [
                i
                for i in first.values()
                if (words and words < known[i].content) or (acronym and acronym == known[i].initials)
            ]
    return [longer[surface] for surface in surfaces]
