"""Vectors of entities that the corpus does not have: from a title and, if there is one, a text."""

import itertools
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from deeped_ray.embeddings import closed_form
from deeped_ray.embeddings.closed_form import ClosedFormConfig, Noise
from deeped_ray.embeddings.evidence import Bags, Evidence, EvidenceReader, bags_of
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.text import content_words

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


def embed_text(kb: KnowledgeBase, title: str, text: str) -> Floats:
    """The vector of an entity that the corpus does not have: the same function, with `text` as its page."""
    return TextEmbedder(kb).embed(title, text)


class TextEmbedder:
    """Embeds many texts: opens the knowledge base once, then takes a millisecond or so each."""

    def __init__(self, kb: KnowledgeBase) -> None:
        part = kb.open("vectors")
        names = (field.name for field in fields(ClosedFormConfig))
        self._config = ClosedFormConfig(**{name: part.config[name] for name in names if name in part.config})
        self._words = Words(kb.open("words"))
        self._reader = EvidenceReader(kb.open("corpus"), self._words)
        self._noise = Noise(*(np.asarray(part.array(f"noise_{name}")) for name in Noise._fields))
        self._inverse = closed_form.inverse_of(self._noise, ridge=self._config.ridge)

    def embed(self, title: str, text: str) -> Floats:
        vector: Floats = self.embed_all([(title, text)])[0]
        return vector

    def embed_all(self, entities: Sequence[tuple[str, str]], known: Sequence[int | None] | None = None) -> Floats:
        """One row for every title and text.

        Where `known` names an entity of the corpus, the words of its page and around its links count beside the text.
        """
        titles = [content_words(title) for title, _ in entities]
        pages = [named + content_words(text) if text else [] for named, (_, text) in zip(titles, entities, strict=True)]
        earlier_pages, earlier_links = self._earlier(known or [None] * len(entities))
        found = [*self._rows([*pages, *titles])]
        page_rows = [np.concatenate(both) for both in zip(found[: len(pages)], earlier_pages, strict=True)]
        bags = [*page_rows, *earlier_links, *found[len(pages) :]]
        # only the words of these texts need their contrast
        rows, places = np.unique(np.concatenate([*bags, np.zeros(0, np.int64)]), return_inverse=True)
        places = np.where(rows[places] >= 0, places, -1)
        contrasts = (self._words.vectors[rows].astype(np.float64) - self._noise.mean) @ self._inverse
        cut = np.split(places, np.cumsum([len(bag) for bag in bags])[:-1])
        evidence = Evidence(*(bags_of(cut[start : start + len(pages)]) for start in range(0, len(cut), len(pages))))
        return _embed(evidence, contrasts.astype(np.float32), self._config)

    def _rows(self, texts: Sequence[Sequence[str]]) -> list[Rows]:
        """Rows of the words of texts, -1 for words without a vector."""
        flat = [word for text in texts for word in text]
        number = {word: i for i, word in enumerate(dict.fromkeys(flat))}
        found = self._words.find_all([*number])[[number[word] for word in flat]]
        return np.split(found, np.cumsum([len(text) for text in texts])[:-1])

    def _earlier(self, entities: Sequence[int | None]) -> tuple[list[Rows], list[Rows]]:
        """Rows of the words of pages and around links, each as often as it stands there."""
        asked = [each for each in entities if each is not None]
        if not asked:
            nothing = [np.zeros(0, np.int64)] * len(entities)
            return nothing, nothing
        evidence, place = self._reader.read(np.array(asked)), {entity: i for i, entity in enumerate(asked)}
        pages, links = (
            [_repeated(bags, place[each]) if each is not None else np.zeros(0, np.int64) for each in entities]
            for bags in (evidence.page, evidence.links)
        )
        return pages, links


def _repeated(bags: Bags, entity: int) -> Rows:
    rows, counts = bags.bag(entity)
    return np.repeat(rows, counts.astype(np.int64))


def _embed(evidence: Evidence, contrasts: Floats, config: ClosedFormConfig) -> Floats:
    """What `closed_form.embed` does, for a few texts and without torch."""
    total = np.zeros((len(evidence.page), contrasts.shape[1]), np.float32)
    for bags, weights in zip(evidence, closed_form.weights_of(evidence, config), strict=True):
        for number, (start, end) in enumerate(itertools.pairwise(bags.offsets.tolist())):
            total[number] += weights[start:end] @ contrasts[bags.rows[start:end]]
    total /= np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
    return total
