#!/usr/bin/env python
"""FAISS index over the entity vectors, and an index of names that resemble others.

ray job submit --working-dir . -- python jobs/build_index.py --kb /abs/KB --recall
"""

import argparse
from typing import Any

from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.recall import RecallConfig, index_recall
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import run_job


def run(args: argparse.Namespace, config: IndexConfig, recall: RecallConfig) -> dict[str, Any]:
    kb = KnowledgeBase(args.kb)
    summary = build_index(kb, config)
    return {**summary, **(index_recall(kb, recall) if recall.recall else {})}


if __name__ == "__main__":
    run_job("build_index", __doc__, [IndexConfig, RecallConfig], run)
