#!/usr/bin/env python
"""Scores of the prior, the local and the global model on annotated documents.

ray job submit --working-dir . -- python jobs/evaluate.py --kb /abs/KB --dataset aida:/abs/testa.tsv
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("evaluate", __doc__)
