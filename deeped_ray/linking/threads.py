"""Documents side by side on threads.

Operators on a few documents are too small for torch to share out: its threads would mostly wait for each other. So torch
gets one thread, and each of ours takes documents of its own; torch and the kernels run without Python's lock.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def document_threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of `number` threads; torch itself has one meanwhile, and `number` afterwards."""
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(number) as pool:
            yield pool
    finally:
        torch.set_num_threads(number)
