#!/usr/bin/env python
"""Scores of the prior, the local and the global model on annotated documents.

ray job submit --working-dir . -- python jobs/evaluate.py --kb /abs/KB --dataset aida:/abs/testa.tsv
"""

import argparse
from typing import Any

from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.evaluation.tables import report_table
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import run_job


def run(args: argparse.Namespace, config: EvaluationConfig) -> dict[str, Any]:
    reports = evaluate(KnowledgeBase(args.kb), config)
    print(report_table(reports))
    return {"results": [report.to_json() for report in reports]}


if __name__ == "__main__":
    run_job("evaluate", __doc__, [EvaluationConfig], run)
