"""How long the reference's link phase lasts: until validation stops improving (section 3)."""

import logging
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import reference
from deeped_ray.embeddings.config import Methods, ShardConfig, device_of
from deeped_ray.embeddings.evidence import EvidenceReader
from deeped_ray.embeddings.objective import noise_cdf
from deeped_ray.embeddings.validation import Validation
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running import tasks
from deeped_ray.types import DeepEdError

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
LINK_STEPS = (0, 50, 100, 200, 400, 800)
"""Lengths that are tried."""


def choose_link_steps(
    corpus: Part, words: Part, methods: Methods, sharding: ShardConfig, validation: Validation | None
) -> Methods:
    """The link phase lasts until validation stops improving: try some lengths on the entities that validation is about."""
    if validation is None:
        raise DeepEdError("`link_steps` -1 needs validation data, and the corpus has none. Set vectors.link_steps.")
    pieces = np.array_split(validation.entities, max(1, len(validation.entities) // sharding.block_entities))
    shared, num_gpus = (corpus, words, methods, sharding), sharding.num_gpus
    found = tasks.run("validate", _embed_stages, pieces, *shared, unit="entities", size=len, num_gpus=num_gpus).results
    stages = np.concatenate(found, axis=1)  # [LINK_STEPS, entities, d]
    scores = {steps: validation.score(vectors) for steps, vectors in zip(LINK_STEPS, stages, strict=True)}
    best = max(scores, key=lambda steps: scores[steps])
    logger.info("validation by %s: link steps %s, best %d", validation.name, scores, best)
    return replace(methods, reference=replace(methods.reference, link_steps=best))


def _embed_stages(entities: Ids, corpus: Part, words: Part, methods: Methods, sharding: ShardConfig) -> Floats:
    """Task: the vectors of some entities after every length of the link phase."""
    known, catalogue = Words(words), Catalogue(corpus)
    seeds = [int(title) for title in hashes_of([catalogue.title(int(entity)) for entity in entities])]
    problems = reference.problems_of(EvidenceReader(corpus, known).read(entities), seeds, methods.reference)
    cdf = noise_cdf(known.counts, alpha=methods.embedding.alpha)
    matrix = torch.from_numpy(np.array(known.vectors)).to(device_of(sharding))
    return np.stack([z.cpu().numpy() for z in reference.stages(problems, matrix, cdf, methods.reference, LINK_STEPS)])
