#!/usr/bin/env python
"""Entity vectors by sharded Ray tasks (section 3 of the paper); run again after a kill, it goes on.

ray job submit --working-dir . -- python jobs/embed_entities.py --kb /abs/KB
python jobs/embed_entities.py --kb KB --only-new          # after a new dump: only what is new or has changed
python jobs/embed_entities.py --kb KB --method reference  # the paper's own optimisation
"""

import argparse
from typing import Any

from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.config import EmbeddingConfig, Methods, ShardConfig, SubsetConfig
from deeped_ray.embeddings.reference import ReferenceConfig
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.evaluation.relatedness import ValidationConfig, validation_of
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import run_job
from deeped_ray.running.resume import ResumeConfig


def run(args: argparse.Namespace, *configs: Any) -> dict[str, Any]:
    *methods, validation, subset, sharding, resume = configs
    kb, scorer = KnowledgeBase(args.kb), validation_of(KnowledgeBase(args.kb), validation)
    return embed_entities(kb, Methods(*methods), sharding, subset=subset, resume=resume, validation=scorer)


METHODS = [EmbeddingConfig, ClosedFormConfig, ReferenceConfig]

if __name__ == "__main__":
    configs = [*METHODS, ValidationConfig, SubsetConfig, ShardConfig, ResumeConfig]
    run_job("embed_entities", __doc__, configs, run)
