#!/usr/bin/env python
"""A fresh dump: the next version of a knowledge base, beside the current one. It becomes current if it links as well.

ray job submit --working-dir . -- python jobs/refresh.py --kb /abs/KB --dump /abs/fresh.xml.bz2
python jobs/refresh.py --kb KB --dump FRESH --serve http://127.0.0.1:8265   # the service follows
python jobs/refresh.py --kb KB --dump FRESH --retrain                       # vocabulary, vectors and linker as well
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("refresh", __doc__)
