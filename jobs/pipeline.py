#!/usr/bin/env python
"""All stages in order: build_corpus, embed_entities, build_index, train_linker, evaluate. What is done already is skipped.

ray job submit --working-dir . -- python jobs/pipeline.py --kb /abs/KB --dump /abs/dump.xml.bz2 --train aida:/abs/train.tsv --dev aida:/abs/testa.tsv
python jobs/pipeline.py --kb KB               # the mini encyclopedia that ships with deeped-ray
python jobs/pipeline.py --kb KB --until embed_entities
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("pipeline", __doc__)
