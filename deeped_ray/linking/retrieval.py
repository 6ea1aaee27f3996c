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
from deeped_ray.linking import retrieval_kernels as kernels
from deeped_ray.linking.encoding import Floats, Ints, Kept, log_prior
from deeped_ray.linking.groups import Group
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
CONSULTED = 24
"""Entities of a mention that say what it seems to mean, at most."""
COMPARED = 16
"""Entities of a mention whose titles are compared, beside those by prior, at most."""
NEIGHBOURS = 100
"""Entities nearest to the document's words, and to its entities, that are looked through for the words of a mention."""
AROUND = 2000
"""Characters before and after the mentions of a window whose words are compared with titles."""
MOST_LINKED = 400
"""Entities linked from those of the document that are looked through, at most: those with most such links."""


class Firsts(NamedTuple):
    """Candidates by prior, one mention after the other."""

    starts: Ints
    """Where those of each begin, and where those of one more would."""
    entity: Ints
    prior: Floats
    support: npt.NDArray[np.float64]
    """Counts."""

    @classmethod
    def of(cls, firsts: Sequence[Senses]) -> "Firsts":
        found = [each.packed for each in firsts]
        starts = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(each.entity) for each in firsts], out=starts[1:])
        entity, prior, support = (bytearray().join(column) for column in zip(*found, strict=True))
        return cls(starts, np.frombuffer(entity, np.int64), np.frombuffer(prior, np.float32), np.frombuffer(support))


class Retriever:
    """Finds candidates for all mentions of a group at once."""

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
        group: Group,
        firsts: Sequence[Senses],
        words: tuple[Ints, Ints, Floats],
        is_listed: npt.NDArray[np.bool_],
        *,
        by_prior: int,
        by_score: int,
        pause: Pause = no_pause,
    ) -> Kept:
        """`firsts` are candidates by prior of each mention. A listed mention gets no entity but those of its list.

        `words` are the rows of word vectors of the text, the sides of each mention's context among them, and the vectors.
        """
        names, slots = self.names.take([surface[: LONGEST_NAME + 1] for surface in group.surfaces], pause)
        vectors, flat, (known, sides, word_vectors) = (self._vectors.own, self._vectors.extra), Firsts.of(firsts), words
        graph = self._graph.offsets, self._graph.words
        sums, queries, documents, *linked = kernels.look_around(
            group.bounds, known, sides, word_vectors, tuple(flat), vectors, graph, MOST_LINKED
        )
        pause()
        nearest = self._index.nearest(queries, count=NEIGHBOURS)
        pause()
        *row_bounds_and_keys, evidence, scores = kernels.gather(
            group.bounds,
            group.names,
            tuple(flat),
            (nearest, *linked, (CONTEXT, DOCUMENT)),
            (
                *(slots, names.matched, names.listed, names.lists, self.names.index.entities),
                (names.contained, names.content, names.initials, names.acronym),
                (names.entity, names.kind, names.strength, names.num_letters),
            ),
            is_listed,
            vectors,
            sums,
            documents,
            self._catalogue.num_links,
            (PRIOR, NAME, LONGER_NAME, CONTEXT_FIT),
            _WEIGHTS_OF_ALL,
            (by_prior, CONSULTED, max(by_score, COMPARED)),
        )
        row_bounds, mention, entity = row_bounds_and_keys
        pause()
        titles = names.titles, names.titled[slots], *self._title_words.take(entity)
        rows, columns = (row_bounds, mention, entity, evidence, scores), (LINK_FIT, TITLES)
        given = group.bounds, group.names, rows, self._link_vectors.halves, columns, titles, words_around(group, pause)
        bounds = kernels.compare(*given, _WEIGHTS_OF_ALL, by_prior, by_score)
        pause()
        end = bounds[-1]
        return Kept(bounds, mention[:end], entity[:end], evidence[:end], _SPREAD_OF, len(SOURCES))


def words_around(group: Group, pause: Pause = no_pause) -> tuple[Ints, Ints]:
    """The words that titles are compared with, window after window: `words_in`. And where those of each window begin."""
    found = []
    for number, window in group.windows:
        document = group.texts.documents[number]
        first, last = (document.mentions[window.mentions[place]] for place in (0, -1))
        found.append(words_in(document.text[max(first.start - AROUND, 0) : last.end + AROUND], pause))
    bounds = np.zeros(len(found) + 1, np.int64)
    np.cumsum([*map(len, found)], out=bounds[1:])
    return np.concatenate(found), bounds


def numbered(names: Sequence[Hashable]) -> Ints:
    """Of every mention the number of its name: mentions that are written alike have the same."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(each, len(numbers)) for each in names], np.int64)


def score(evidence: Floats) -> Floats:
    """By which candidates are kept."""
    scores: Floats = evidence @ _WEIGHT_OF + _PRIOR_WEIGHT * log_prior(evidence[:, PRIOR])
    return scores
