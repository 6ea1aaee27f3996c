#!/usr/bin/env python
"""Links a corpus of any size: documents in Parquet or JSON lines in, answers in Parquet out; run again after a kill, it goes on.

ray job submit --working-dir . -- python jobs/link_corpus.py --kb /abs/KB --input '/abs/documents/*.parquet' --output /abs/answers
python jobs/link_corpus.py --kb KB --input documents.jsonl.gz --output answers --top 3 --explain
"""

import argparse
from typing import Any

from deeped_ray.batch.link import CorpusLinkingConfig, link_corpus
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.running.config import run_job


def run(args: argparse.Namespace, config: CorpusLinkingConfig, detection: DetectionConfig) -> dict[str, Any]:
    return link_corpus(KnowledgeBase(args.kb), config, detection)


if __name__ == "__main__":
    run_job("link_corpus", __doc__, [CorpusLinkingConfig, DetectionConfig], run)
