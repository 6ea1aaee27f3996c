#!/usr/bin/env python
"""Dump -> entity catalogue, redirects, hyperlinks, p(e|m), word-entity counts, word vectors.

ray job submit --working-dir . -- python jobs/build_corpus.py --kb /abs/KB --dump /abs/dump.xml.bz2
python jobs/build_corpus.py --kb KB          # the mini encyclopedia that ships with deeped-ray
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("build_corpus", __doc__)
