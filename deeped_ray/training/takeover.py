"""The linker of another knowledge base taken over: for one that has too few documents to teach a linker of its own.

A linker compares vectors of words and entities. So it fits wherever the vectors of words are the same, whatever the
entities are. Reads both knowledge bases' `words`, copies the part `linker` with its calibration and detection.
"""

import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.types import DeepEdError

LEFT_OUT = ("mention_counts.parquet",)
"""Annotations of the other's entities."""
ENOUGH_WORDS = 1000
"""Shared words that are compared, at most."""


def take_linker(kb: KnowledgeBase, source: str) -> dict[str, Any]:
    """Copy the linker part of `source`, unless it is taken over already; returns where it is from."""
    other = KnowledgeBase(source)
    part = other.open("linker")
    check_words(kb, other)
    copy_linker(kb, part, config={**part.config, "taken_from": part.id})
    return {"linker_from": str(other), "linker": part.id}


def copy_linker(kb: KnowledgeBase, part: Part, *, config: Mapping[str, Any]) -> None:
    parents = [*part.record["parents"]]
    if kb.is_current("linker", config=config, parents=parents):
        return
    with kb.write("linker", config=config, parents=parents) as folder:
        for name in part.record["files"]:
            if name not in LEFT_OUT:
                (folder / name).parent.mkdir(exist_ok=True)
                shutil.copy(part.path / name, folder / name)


def check_words(kb: KnowledgeBase, other: KnowledgeBase) -> None:
    """Refuse word vectors of another making: between them, the linker's weights mean nothing."""
    own, theirs = Words(kb.open("words")), Words(other.open("words"))
    if own.vectors.shape[1] != theirs.vectors.shape[1]:
        found, expected = own.vectors.shape[1], theirs.vectors.shape[1]
        raise DeepEdError(
            f"The word vectors of {kb} have {found} dimensions, those of {other} {expected}. {_remedy(other)}"
        )
    step = max(len(own) // ENOUGH_WORDS, 1)
    rows = np.arange(0, len(own), step)
    places = theirs.find_all(own.take(rows))
    rows, places = rows[places >= 0], places[places >= 0]
    is_same = np.isclose(own.vectors[rows], theirs.vectors[places], atol=1e-4).all(axis=1)
    if not len(rows) or not is_same.all():
        share = f"{is_same.mean():.0%}" if len(rows) else "none"
        raise DeepEdError(
            f"{kb} and {other} have different word vectors: of the words that both have, {share} have the same."
            f" {_remedy(other)}"
        )


def _remedy(other: KnowledgeBase) -> str:
    return f"Build with --word-vectors {other}."
