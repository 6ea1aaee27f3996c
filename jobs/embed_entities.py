#!/usr/bin/env python
"""Entity vectors by sharded Ray tasks (section 3 of the paper); run again after a kill, it goes on.

ray job submit --working-dir . -- python jobs/embed_entities.py --kb /abs/KB
"""

import argparse
from typing import Any

from deeped_ray.artifacts import KnowledgeBase, ResumeConfig
from deeped_ray.embeddings.trainer import EmbeddingConfig, ShardConfig, embed_entities
from deeped_ray.options import run_job


def run(
    args: argparse.Namespace, config: EmbeddingConfig, sharding: ShardConfig, resume: ResumeConfig
) -> dict[str, Any]:
    return embed_entities(KnowledgeBase(args.kb), config, sharding, resume)


if __name__ == "__main__":
    run_job("embed_entities", __doc__, [EmbeddingConfig, ShardConfig, ResumeConfig], run)
