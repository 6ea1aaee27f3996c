"""Vectors of words and entities, and the indexes that find entities by vector and by name."""

import logging

# it tells at INFO, in every process, which of its builds it has tried
logging.getLogger("faiss.loader").setLevel(logging.WARNING)
