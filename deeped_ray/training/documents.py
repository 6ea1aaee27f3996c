"""Which documents a linker is fitted to, which choose its best epoch, and which say how sure it may be.

    train         given as --train, with a weight: `links:train@0.5`. Without any: the articles that the dump keeps aside.
    dev           given as --dev. Without any: one in five of these articles, or of the documents given as --documents.
    calibration   one in five of these articles, and the annotated training documents

Annotated training documents were seen in training, so the model is somewhat surer there than elsewhere. That matters less
than to know their kind of text (docs/experiments.md). Documents given as --dev are never calibrated on, so that scores on
them say how good the probabilities are.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deeped_ray.corpus import teaching
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.evaluation.datasets import LINKS, identity, read_dataset, read_datasets
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.mini import MINI_DUMP
from deeped_ray.training.config import TrainingConfig
from deeped_ray.types import DeepEdError, Document

LEAST_MENTIONS = 50
"""With fewer there is nothing to learn from."""
FEW_MENTIONS = 1000
"""With fewer to calibrate on, the training documents help, though the model has seen them."""
ENOUGH_MENTIONS = 25_000
"""Of articles, for calibration."""


@dataclass(frozen=True, kw_only=True)
class TrainingDocuments:
    train: list[Document]
    weights: list[float]
    """Of the training documents."""
    dev: list[Document]
    calibration: list[Document]
    annotated: list[Document] = field(default_factory=list)
    """Training documents in which every name is annotated, also those outside Wikipedia: for detection only."""

    @classmethod
    def of(cls, train: list[Document], dev: list[Document]) -> "TrainingDocuments":
        """Of equal weight, without any to calibrate on."""
        return cls(train=train, weights=[1.0] * len(train), dev=dev, calibration=[])

    def teach(self, catalogue: Catalogue) -> bool:
        """Whether a model can be fitted to them: nothing is learned from links to what the wiki does not have."""
        mentions = (mention for document in self.train for mention in document.mentions)
        known = (mention for mention in mentions if catalogue.find_gold(mention) is not None)
        return bool(self.dev) and sum(1 for _ in itertools.islice(known, LEAST_MENTIONS)) == LEAST_MENTIONS

    @classmethod
    def read(cls, kb: KnowledgeBase, training: TrainingConfig) -> "TrainingDocuments":
        train, weights, calibration = [], [], _some(teaching.read(kb.open("corpus"), "dev"))
        for spec in training.train:
            name, weight = split_weight(spec)
            documents = read_dataset(name, kb=kb)
            train += documents
            weights += [weight] * len(documents)
            if name not in LINKS:
                calibration += read_dataset(name, with_unlinked=training.learn_unlinked)
        if sum(len(document.mentions) for document in calibration) < FEW_MENTIONS:
            calibration += [document for document in train if document not in calibration]
        dev = read_datasets(training.dev, kb=kb)
        if not dev:
            aside = [place for place, each in enumerate(train) if teaching.is_for_validation(each.name)]
            aside = aside or [*range(len(train))][-1:]
            dev = [train[place] for place in aside]
            train = [each for place, each in enumerate(train) if place not in aside]
            weights = [each for place, each in enumerate(weights) if place not in aside]
        return cls(
            train=train,
            weights=weights,
            dev=dev,
            calibration=calibration,
            annotated=_annotated(training),
        )


def _annotated(training: TrainingConfig) -> list[Document]:
    """Of AIDA's layout, which marks names outside Wikipedia too."""
    names = (split_weight(spec)[0] for spec in training.train)
    specs = [name for name in names if name.startswith(("aida:", "mini:"))]
    return [document for name in specs for document in read_dataset(name, with_unlinked=True)]


def with_defaults(kb: KnowledgeBase, training: TrainingConfig) -> TrainingConfig:
    """With documents that need not be given: the mini encyclopedia's own, else those that the dump keeps aside.

    A dump with few links may have none: then there is nothing to learn from.
    """
    if kb.open("pages").config["dumps"] == [fingerprint(MINI_DUMP)]:
        own: Sequence[str] = ("mini:train", "mini:dev")
    else:
        splits: tuple[teaching.Split, ...] = ("train", "dev")
        own = [f"links:{split}" for split in splits if teaching.read(kb.open("corpus"), split)]
    if training.train and not training.dev and not own:
        raise DeepEdError("Give --dev, as in aida:FILE: the dump has no links to validate on.")
    train = (*(training.train or own[:1]), *(f"jsonl:{file}" for file in training.documents))
    return replace(training, train=train, dev=training.dev or tuple(own[-1:]), documents=())


def split_weight(spec: str) -> tuple[str, float]:
    """`aida:train.tsv@0.5` -> `aida:train.tsv`, 0.5. `links` stands for `links:train`."""
    name, mark, weight = spec.rpartition("@")
    try:
        name, factor = (name, float(weight)) if mark else (spec, 1.0)
    except ValueError:  # the @ is part of a file's name
        name, factor = spec, 1.0
    if not 0 < factor < math.inf:
        raise DeepEdError(f"The weight in {spec!r} must be above 0.")
    return LINKS[0] if name == "links" else name, factor


def training_identity(spec: str) -> Any:
    name, weight = split_weight(spec)
    return [identity(name), weight]


def _some(documents: list[Document]) -> list[Document]:
    """As many as are enough: more would only take time."""
    ends = itertools.accumulate(len(document.mentions) for document in documents)
    return [document for document, end in zip(documents, ends, strict=True) if end <= ENOUGH_MENTIONS] or documents[:1]
