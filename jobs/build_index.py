#!/usr/bin/env python
"""FAISS index over the entity vectors, and an index of names that resemble others.

ray job submit --working-dir . -- python jobs/build_index.py --kb /abs/KB --recall
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("build_index", __doc__)
