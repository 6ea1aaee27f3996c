#!/usr/bin/env python
"""FAISS index over the entity vectors.

ray job submit --working-dir . -- python jobs/build_index.py --kb /abs/KB
"""

import argparse
from typing import Any

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.options import run_job


def run(args: argparse.Namespace, config: IndexConfig) -> dict[str, Any]:
    return build_index(KnowledgeBase(args.kb), config)


if __name__ == "__main__":
    run_job("build_index", __doc__, [IndexConfig], run)
