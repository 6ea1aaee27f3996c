#!/usr/bin/env python
"""Local attention and unrolled belief propagation, fitted with Ray Train. After a kill, run it again: it goes on.

ray job submit --working-dir . -- python jobs/train_linker.py --kb /abs/KB --train aida:/abs/train.tsv --dev aida:/abs/testa.tsv
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("train_linker", __doc__)
