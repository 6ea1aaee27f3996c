"""Vectors of entities by the shard: what a task makes, the file it leaves, and how the files become a part.

A shard's file is written whole or not at all. An entity's result depends on its own words and seed only, not on its shard.
"""

import contextlib
import io
import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deeped_ray.embeddings import closed_form, reference
from deeped_ray.embeddings.config import Methods, ShardConfig, device_of
from deeped_ray.embeddings.evidence import (
    NOT_TRAINED,
    Evidence,
    EvidenceReader,
    fingerprints,
)
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running import tasks
from deeped_ray.storage.arrays import writing_array
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_BLOCK = 2**20


class ShardResult(NamedTuple):
    vectors: Floats
    evidence: npt.NDArray[np.int8]
    fingerprints: npt.NDArray[np.uint64]
    titles: npt.NDArray[np.uint64]
    is_trained: npt.NDArray[np.bool_]


class Previous(NamedTuple):
    """Vectors of an earlier run, found by the hash of a title."""

    vectors: Floats
    evidence: npt.NDArray[np.int8]
    fingerprints: npt.NDArray[np.uint64]
    titles: npt.NDArray[np.uint64]

    def rows_of(self, titles: npt.NDArray[np.uint64]) -> Ids:
        """Row of each title, -1 where there is none."""
        order = np.argsort(self.titles, kind="stable")
        place = np.minimum(np.searchsorted(self.titles, titles, sorter=order), max(len(order) - 1, 0))
        found = order[place] if len(order) else np.zeros(len(titles), dtype=np.int64)
        return np.where(self.titles[found] == titles, found, -1) if len(order) else found - 1


class Shared(NamedTuple):
    """What all shards are computed with; goes to the object store once."""

    corpus: Part
    words: Part
    matrix: Floats
    """x'_w of the closed form, or x_w for the reference."""
    noise_cdf: npt.NDArray[np.float64]
    methods: Methods
    sharding: ShardConfig
    previous: Part | None
    only_new: bool
    subset: npt.NDArray[np.uint64] | None


def cut_of(methods: Methods, sharding: ShardConfig) -> int:
    return sharding.shard_words if methods.is_closed_form else sharding.shard_entities


def ranges(shared: Shared) -> list[tuple[int, int]]:
    """Runs of entities of about equal work: words to gather, or, by the reference, entities."""
    reader, cut = EvidenceReader(shared.corpus, Words(shared.words)), cut_of(shared.methods, shared.sharding)
    starts, total, last = list[int](), 0, -1
    for first in range(0, len(reader), _BLOCK):
        end = min(first + _BLOCK, len(reader))
        work = reader.work(first, end) if shared.methods.is_closed_form else np.ones(end - first, dtype=np.int64)
        shard_of_entity = (total + np.cumsum(work) - work) // cut
        starts += (first + np.flatnonzero(np.diff(shard_of_entity, prepend=last))).tolist()
        total, last = total + int(work.sum()), int(shard_of_entity[-1])
    return list(zip(starts, [*starts[1:], len(reader)], strict=True))


class _Shard(NamedTuple):
    file: Location
    start: int
    end: int

    @property
    def num_entities(self) -> int:
        return self.end - self.start


def train_shards(shared: Shared, run: Location) -> tuple[list[Location], float]:
    """The shards' files, and the most memory that a worker held, in GiB."""
    names = [(f"entities-{start:09d}-{end:09d}.npz", start, end) for start, end in ranges(shared)]
    shards = [_Shard(run / name, start, end) for name, start, end in names]
    outcome = tasks.run(
        "embed",
        _embed_shard,
        shards,
        shared,
        earlier=lambda shard: _is_finished(shard.file) or None,
        unit="entities",
        size=lambda shard: shard.num_entities,
        writes=run,
        num_gpus=shared.sharding.num_gpus,
    )
    return [shard.file for shard in shards], outcome.peak_gib


def _embed_shard(shard: _Shard, shared: Shared) -> bool:
    """Task: the vectors of a run of entities, in one file."""
    write_shard(shard.file, embed_range(np.arange(shard.start, shard.end), shared))
    return True


def embed_range(entities: Ids, shared: Shared) -> ShardResult:
    words = Words(shared.words)
    reader = EvidenceReader(shared.corpus, words)
    evidence, names = reader.read(entities), reader.titles(entities)
    titles = hashes_of(names)
    prints = fingerprints(evidence, names, words.hashes)
    vectors = np.zeros((len(entities), shared.matrix.shape[1]), dtype=np.float32)
    kinds = np.full(len(entities), NOT_TRAINED, dtype=np.int8)
    wanted = np.isin(titles, shared.subset) if shared.subset is not None else np.ones(len(entities), dtype=bool)
    if shared.previous is not None:
        old = Previous(*(np.asarray(shared.previous.array(name)) for name in Previous._fields))
        rows = old.rows_of(titles)
        is_kept = (rows >= 0) & ~wanted
        if shared.only_new:
            is_same = (old.fingerprints[rows] == prints) & (old.evidence[rows] != NOT_TRAINED)
            is_kept |= (rows >= 0) & is_same
        vectors[is_kept], kinds[is_kept] = old.vectors[rows[is_kept]], old.evidence[rows[is_kept]]
        wanted &= ~is_kept
    chosen = np.flatnonzero(wanted)
    if len(chosen):
        found = evidence if len(chosen) == len(entities) else reader.read(entities[chosen])
        vectors[chosen], kinds[chosen] = _vectors(found, titles[chosen], shared), found.kinds
    return ShardResult(vectors, kinds, prints, titles, wanted)


def _vectors(evidence: Evidence, titles: npt.NDArray[np.uint64], shared: Shared) -> Floats:
    methods, sharding = shared.methods, shared.sharding
    device = device_of(sharding)
    with warnings.catch_warnings():  # the object store's arrays are read-only, and nothing here writes to them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        matrix = torch.from_numpy(shared.matrix).to(device)
    if methods.is_closed_form:
        return closed_form.embed(evidence, matrix, methods.closed_form)
    seeds = [int(title) for title in titles]
    return reference.embed(
        evidence, seeds, matrix, shared.noise_cdf, methods.reference, block_entities=sharding.block_entities
    )


# -- shard files


def write_shard(file: Location, result: ShardResult) -> None:
    with file.writing() as path:
        try:
            with open(path, "wb") as handle:
                np.savez(handle, **result._asdict())
                handle.flush()
                os.fsync(handle.fileno())
        except OSError as error:
            raise DeepEdError(
                f"Cannot write {file}: {error.strerror}. Finished shards are kept: make room, and run the same command again."
            ) from error


def _read_shard(file: Location) -> ShardResult:
    with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
        return ShardResult(**{name: arrays[name] for name in ShardResult._fields})


def _is_finished(file: Location) -> bool:
    """Present and readable to the end; zip checksums tell a damaged shard from a good one."""
    try:
        _read_shard(file)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False
    return True


def join(files: Sequence[Location], num_entities: int, dimension: int, folder: Path) -> int:
    """Put the shards into the part, one in memory at a time; returns how many entities were trained."""
    kinds = {"vectors": np.float32, "evidence": np.int8, "fingerprints": np.uint64, "titles": np.uint64}
    num_trained = 0
    with contextlib.ExitStack() as stack:
        sinks = {
            name: stack.enter_context(
                writing_array(
                    folder / f"{name}.npy", kind, (num_entities, dimension) if name == "vectors" else (num_entities,)
                )
            )
            for name, kind in kinds.items()
        }
        for file in files:
            result = _read_shard(file)
            num_trained += int(result.is_trained.sum())
            for name, sink in sinks.items():
                getattr(result, name).tofile(sink)
    return num_trained
