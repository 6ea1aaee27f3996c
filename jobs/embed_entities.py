#!/usr/bin/env python
"""Entity vectors by sharded Ray tasks (section 3 of the paper); run again after a kill, it goes on.

ray job submit --working-dir . -- python jobs/embed_entities.py --kb /abs/KB
python jobs/embed_entities.py --kb KB --only-new          # after a new dump: only what is new or has changed
python jobs/embed_entities.py --kb KB --method reference  # the paper's own optimisation
"""

import argparse
from typing import Any

from deeped_ray.artifacts import KnowledgeBase, ResumeConfig
from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.reference import ReferenceConfig
from deeped_ray.embeddings.trainer import EmbeddingConfig, Methods, ShardConfig, SubsetConfig, embed_entities
from deeped_ray.evaluation.relatedness import ValidationConfig, validation_of
from deeped_ray.options import run_job


def run(
    args: argparse.Namespace,
    embedding: EmbeddingConfig,
    closed_form: ClosedFormConfig,
    reference: ReferenceConfig,
    validation: ValidationConfig,
    subset: SubsetConfig,
    sharding: ShardConfig,
    resume: ResumeConfig,
) -> dict[str, Any]:
    kb = KnowledgeBase(args.kb)
    return embed_entities(
        kb,
        Methods(embedding, closed_form, reference),
        sharding,
        subset=subset,
        resume=resume,
        validation=validation_of(kb, validation),
    )


CONFIGS = [
    EmbeddingConfig,
    ClosedFormConfig,
    ReferenceConfig,
    ValidationConfig,
    SubsetConfig,
    ShardConfig,
    ResumeConfig,
]

if __name__ == "__main__":
    run_job("embed_entities", __doc__, CONFIGS, run)
