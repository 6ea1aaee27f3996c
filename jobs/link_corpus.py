#!/usr/bin/env python
"""Links a corpus of any size: documents in Parquet or JSON lines in, answers in Parquet out. After a kill, run it again: it goes on.

ray job submit --working-dir . -- python jobs/link_corpus.py --kb /abs/KB --input '/abs/documents/*.parquet' --output /abs/answers
python jobs/link_corpus.py --kb KB --input documents.jsonl.gz --output answers --top 3 --explain
"""

from deeped_ray.stages import main

if __name__ == "__main__":
    main("link_corpus", __doc__)
