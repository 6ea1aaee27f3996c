#!/usr/bin/env python
"""All stages in order: build_corpus, embed_entities, build_index, train_linker, evaluate; what is done already is skipped.

ray job submit --working-dir . -- python jobs/pipeline.py --kb /abs/KB --dump /abs/dump.xml.bz2 --train aida:/abs/train.tsv --dev aida:/abs/testa.tsv
python jobs/pipeline.py --kb KB               # the mini encyclopedia that ships with deeped-ray
python jobs/pipeline.py --kb KB --until embed_entities

Options are those of the stages. Where two stages have one of the same name, it bears the stage's before it: --embed-seed,
--train-seed.
"""

from deeped_ray.pipeline import main

if __name__ == "__main__":
    main(__doc__)
