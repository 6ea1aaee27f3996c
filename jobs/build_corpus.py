#!/usr/bin/env python
"""Dump -> entity catalogue, redirects, hyperlinks, p(e|m), word-entity counts, word vectors.

ray job submit --working-dir . -- python jobs/build_corpus.py --kb /abs/KB --dump /abs/dump.xml.bz2
python jobs/build_corpus.py --kb KB          # the mini encyclopedia that ships with deeped-ray
"""

import argparse
from typing import Any

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import run_job
from deeped_ray.running.resume import ResumeConfig


def run(
    args: argparse.Namespace, corpus: CorpusConfig, words: WordVectorConfig, resume: ResumeConfig
) -> dict[str, Any]:
    kb = KnowledgeBase(args.kb, create=True)
    return {**build_corpus(kb, corpus, resume), **build_words(kb, words)}


if __name__ == "__main__":
    run_job("build_corpus", __doc__, [CorpusConfig, WordVectorConfig, ResumeConfig], run)
