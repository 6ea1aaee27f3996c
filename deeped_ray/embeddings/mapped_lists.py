"""An index whose codes all processes of a node map from one file: FAISS reads blocks of 4-bit codes into each of them.

The first process that opens an index takes it apart, in the node's cache:

    CACHE/index/<checksum>/head.faiss   the index without its entries
    CACHE/index/<checksum>/codes        for each list, its blocks of codes and then the rows of its entries
    CACHE/index/<checksum>/lists.npy    for each list: entries, entries that its blocks have room for, place in `codes`;
                                        then the size of `codes`. Written last: without it, all is written again

FAISS takes the lists from there as it takes lists from a disk. The code that searches, and its answers, are the same.
"""

import logging
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from deeped_ray.storage.cache import cache_folder, caching

ALIGNMENT = 64
_log = logging.getLogger(__name__)
Lists = npt.NDArray[np.uint64]


def read_mapped(file: Path, checksum: str) -> Any:
    """The index of a file with this checksum. If the node's cache cannot be written, it is read into memory."""
    folder = cache_folder() / "index" / checksum[:32]
    try:
        with caching(folder):
            if not _is_whole(folder):
                _take_apart(faiss.read_index(str(file)), folder)
        return _open(folder)
    except (OSError, RuntimeError) as error:  # FAISS's own errors are runtime errors
        _log.warning("%s is read into memory, for its codes cannot be kept in %s: %s", file, folder, error)
        return faiss.read_index(str(file))


def _is_whole(folder: Path) -> bool:
    lists, codes = folder / "lists.npy", folder / "codes"
    return lists.exists() and codes.exists() and codes.stat().st_size == int(np.load(lists)[-1, 2])


def _take_apart(index: Any, folder: Path) -> None:
    (folder / "lists.npy").unlink(missing_ok=True)
    lists = _write_codes(index, folder / "codes")
    index.reset()
    faiss.write_index(index, str(folder / "head.faiss"))
    arriving = folder / "arriving.npy"
    np.save(arriving, lists)
    arriving.replace(folder / "lists.npy")


def _write_codes(index: Any, file: Path) -> Lists:
    entries = faiss.downcast_InvertedLists(index.invlists)
    lists = np.zeros((index.nlist + 1, 3), np.uint64)
    with open(file, "wb") as codes:
        for number in range(index.nlist):
            size = entries.list_size(number)
            room = -(-size // index.bbs) * index.bbs
            lists[number] = size, room, codes.tell()
            if size:
                codes.write(faiss.rev_swig_ptr(entries.get_codes(number), room * index.code_size).tobytes())
                codes.write(faiss.rev_swig_ptr(entries.get_ids(number), size).tobytes())
                codes.write(bytes(-codes.tell() % ALIGNMENT))
        lists[-1, 2] = codes.tell()
    return lists


def _open(folder: Path) -> Any:
    index: Any = faiss.read_index(str(folder / "head.faiss"))
    mapped: Any = faiss.OnDiskInvertedLists()
    lists = np.load(folder / "lists.npy")
    mapped.nlist, mapped.code_size, mapped.totsize = index.nlist, index.code_size, int(lists[-1, 2])
    mapped.filename, mapped.read_only = str(folder / "codes"), True
    mapped.prefetch_nthread = 0  # threads that read ahead from a disk; here the system does that
    mapped.lists.resize(index.nlist)
    faiss.memcpy(mapped.lists.data(), faiss.swig_ptr(lists), index.nlist * lists[0].nbytes)
    mapped.do_mmap()
    index.replace_invlists(mapped, True)
    mapped.this.disown()  # the index frees it
    index.ntotal = int(lists[:-1, 0].sum())
    return index
