"""Which documents a linker is fitted to, which choose its best epoch, and which say how sure it may be.

    train         given as --train, with a weight: `links:train@0.5`. Without any: the articles that the dump keeps aside.
    dev           given as --dev. Without any: one in five of these articles.
    calibration   those same articles, and one in ten of the annotated training documents, which nothing is fitted to

Documents given as --dev are never calibrated on, so that scores on them say how good the probabilities are.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from deeped_ray.corpus import teaching
from deeped_ray.evaluation.datasets import LINKS, identity, read_dataset, read_datasets
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.knowledge.strings import hash64
from deeped_ray.mini import MINI_DUMP
from deeped_ray.training.config import TrainingConfig
from deeped_ray.types import DeepEdError, Document

CALIBRATION_ONE_IN = 10


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
    def read(cls, kb: KnowledgeBase, training: TrainingConfig) -> "TrainingDocuments":
        train, weights, calibration = [], [], teaching.read(kb.open("corpus"), "dev")
        for spec in training.train:
            name, weight = split_weight(spec)
            for document in read_dataset(name, kb=kb):
                if name not in LINKS and is_for_calibration(document):
                    calibration.append(document)
                else:
                    train.append(document)
                    weights.append(weight)
        dev, annotated = read_datasets(training.dev, kb=kb), _annotated(training)
        return cls(train=train, weights=weights, dev=dev, calibration=calibration, annotated=annotated)


def _annotated(training: TrainingConfig) -> list[Document]:
    """Of AIDA's layout, which marks names outside Wikipedia too."""
    names = (split_weight(spec)[0] for spec in training.train)
    specs = [name for name in names if name.startswith(("aida:", "mini:"))]
    return [document for name in specs for document in read_dataset(name, with_unlinked=True)]


def with_defaults(kb: KnowledgeBase, training: TrainingConfig) -> TrainingConfig:
    """Documents that need not be given: the mini encyclopedia's own, else those that the dump keeps aside, if it has any."""
    corpus = kb.open("corpus")
    is_mini = kb.open("pages").config["dumps"] == [fingerprint(MINI_DUMP)]
    train, dev = ("mini:train", "mini:dev") if is_mini else LINKS
    has_links = is_mini or bool(teaching.read(corpus, "train"))
    if training.train and not training.dev and not has_links:
        raise DeepEdError("Give --dev, as in aida:FILE: the dump has no links to validate on.")
    if not has_links:
        return training
    return replace(training, train=training.train or (train,), dev=training.dev or (dev,))


def split_weight(spec: str) -> tuple[str, float]:
    """`aida:train.tsv@0.5` -> `aida:train.tsv`, 0.5."""
    name, mark, weight = spec.rpartition("@")
    try:
        return (name, float(weight)) if mark else (spec, 1.0)
    except ValueError:  # the @ is part of a file's name
        return spec, 1.0


def training_identity(spec: str) -> Any:
    name, weight = split_weight(spec)
    return [identity(name), weight]


def is_for_calibration(document: Document) -> bool:
    return hash64(f"calibration\t{document.name}") % CALIBRATION_ONE_IN == 0
