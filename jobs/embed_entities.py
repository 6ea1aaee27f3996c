#!/usr/bin/env python
"""Entity vectors by sharded Ray tasks (section 3 of the paper). After a kill, run it again: it goes on.

ray job submit --working-dir . -- python jobs/embed_entities.py --kb /abs/KB
python jobs/embed_entities.py --kb KB --only-new          # after a new dump: only what is new or has changed
python jobs/embed_entities.py --kb KB --method reference  # the paper's own optimisation
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("embed_entities", __doc__)
