#!/usr/bin/env python
"""Local attention and unrolled belief propagation, fitted with Ray Train; run again after a kill, it goes on.

ray job submit --working-dir . -- python jobs/train_linker.py --kb /abs/KB --train aida:/abs/train.tsv --dev aida:/abs/testa.tsv
"""

import argparse
from typing import Any

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.model import ModelConfig
from deeped_ray.running.config import run_job
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.trainer import train_linker


def run(
    args: argparse.Namespace,
    training: TrainingConfig,
    model: ModelConfig,
    candidates: CandidateConfig,
    workers: WorkerConfig,
    resume: ResumeConfig,
) -> dict[str, Any]:
    return train_linker(KnowledgeBase(args.kb), training, model, candidates, workers, resume)


if __name__ == "__main__":
    run_job("train_linker", __doc__, [TrainingConfig, ModelConfig, CandidateConfig, WorkerConfig, ResumeConfig], run)
