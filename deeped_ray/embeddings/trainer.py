"""Entity vectors by sharded Ray tasks: every entity is its own small problem (section 3).

Reads the parts `corpus` and `words`, writes `vectors`:

    vectors.npy [E, d]                       unit length; zero for entities of which nothing is known
    evidence.npy, fingerprints.npy [E]       kind of evidence, and a hash of it
    titles.npy [E]                           hashes of titles, by which a later run finds the vectors again
    noise_mean.npy, noise_covariance.npy     mu and Sigma of the closed form

A finished shard is a file in the run's folder, written whole or not at all; the same command after a kill takes
up the shards that are there. An entity's result depends on its own words and seed only, not on its shard.
"""

import contextlib
import io
import os
import time
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import closed_form, reference
from deeped_ray.embeddings.closed_form import Noise
from deeped_ray.embeddings.config import Methods, ShardConfig, SubsetConfig, device_of
from deeped_ray.embeddings.evidence import (
    EVIDENCE_NAMES,
    NOT_TRAINED,
    PAGE,
    PAGE_AND_LINKS,
    Evidence,
    EvidenceReader,
    fingerprints,
)
from deeped_ray.embeddings.link_phase import choose_link_steps
from deeped_ray.embeddings.objective import exact_objective, noise_cdf
from deeped_ray.embeddings.validation import Validation
from deeped_ray.embeddings.words import Words, unit_rows
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running import tasks
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.arrays import save_array, writing_array
from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
LOSS_ENTITIES, LOSS_NEGATIVES = 1000, 4096
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


def embed_entities(
    kb: KnowledgeBase,
    methods: Methods = Methods(),  # noqa: B008 - immutable
    sharding: ShardConfig = ShardConfig(),  # noqa: B008
    *,
    subset: SubsetConfig = SubsetConfig(),  # noqa: B008
    resume: ResumeConfig = NEW_RUN,
    validation: Validation | None = None,
    is_measured: bool = True,
) -> dict[str, Any]:
    """Make the vectors part unless it is there already; returns counts, times and, if measured, losses and a score."""
    parents = ["corpus", "words"]
    corpus, words = kb.open("corpus"), kb.open("words")
    titles = _read_titles(subset.entities, Catalogue(corpus)) if subset.entities else None
    previous = _previous(kb, methods, subset)
    config = {
        **methods.recorded(),
        "words": _words_identity(words),
        "validation": validation.name if validation and methods.needs_validation else None,
        "added_to": previous.id if previous else None,
        "entities": len(titles) and hex(int(np.bitwise_xor.reduce(titles))) if titles is not None else None,
    }
    is_done = kb.is_current("vectors", config=config, parents=parents)
    if is_done or (previous and subset.only_new and _is_complete(kb, previous)):
        return _counts(kb.open("vectors"))
    times = [time.monotonic()]
    with kb.write("vectors", config=config, parents=parents) as folder:
        run = resume.folder(kb, "embed", [corpus.id, words.id, config, _cut(methods, sharding)])
        if methods.needs_validation:
            methods = choose_link_steps(corpus, words, methods, sharding, validation)
        noise = _noise(Words(words), methods, previous)
        shared = _share(run, corpus, words, noise, methods, sharding, previous, subset.only_new, titles)
        times.append(time.monotonic())
        paths, peak = _train_shards(shared, run)
        times.append(time.monotonic())
        num_entities = len(Catalogue(corpus))
        num_trained = _join(paths, num_entities, shared.matrix.shape[1], folder)
        for name, array in noise._asdict().items():
            np.save(folder / f"noise_{name}.npy", array)
    times.append(time.monotonic())
    run.remove()
    part = kb.open("vectors")
    return {
        **_counts(part),
        "trained": num_trained,
        "peak_worker_gib": round(peak, 2),
        **(_measures(kb, part, methods, validation) if is_measured else {}),
        "seconds_by_step": dict(zip(("prepare", "embed", "join"), np.diff(times).round(1).tolist(), strict=True)),
    }


def _counts(part: Part) -> dict[str, Any]:
    kinds = np.bincount(part.array("evidence"), minlength=len(EVIDENCE_NAMES)).tolist()
    return {"entities": sum(kinds), "evidence": dict(zip(EVIDENCE_NAMES, kinds, strict=True))}


# -- what came before


def _previous(kb: KnowledgeBase, methods: Methods, subset: SubsetConfig) -> Part | None:
    """The vectors that entities outside the subset keep."""
    if not (subset.only_new or subset.entities):
        return None
    part = kb.last("vectors")
    if part is None:
        if subset.only_new:
            raise DeepEdError(f"--only-new adds to vectors, and {kb} has none. Run without it first.")
        return None
    expected = {**methods.recorded(), "words": _words_identity(kb.open("words"))}
    changed = [name for name in expected if part.config.get(name) != expected[name]]
    if changed:
        raise DeepEdError(
            f"The vectors of {kb} were made with other {', '.join(changed)} and would not fit new ones. Run without --only-new and --entities."
        )
    return part


def _words_identity(words: Part) -> Any:
    """What word vectors are: the file they come from, or, learned from the dump, this very part."""
    return words.config.get("word_vectors") or words.id


def _is_complete(kb: KnowledgeBase, previous: Part) -> bool:
    """Whether every entity of the current corpus has its vector there."""
    parents = previous.record["parents"]
    is_current = all(kb.open(parent).id == parent_id for parent, parent_id in parents.items())
    return is_current and not (previous.array("evidence") == NOT_TRAINED).any()


def _read_titles(path: str, catalogue: Catalogue) -> npt.NDArray[np.uint64]:
    """Hashes of the titles in a file, after redirects."""
    titles = [line for line in read_lines(path) if line.strip()]
    if not titles:
        raise DeepEdError(f"{path} names no entity. Expected one title a line.")
    return np.unique(hashes_of([catalogue.title(catalogue.require(title)) for title in titles]))


# -- shards


def _noise(words: Words, methods: Methods, previous: Part | None) -> Noise:
    if previous is None:
        return closed_form.noise_of(words.vectors, words.counts, alpha=methods.embedding.alpha)
    # vectors are comparable only if they were made against the same noise
    return Noise(*(np.asarray(previous.array(f"noise_{name}")) for name in Noise._fields))


def _contrasts(words: Words, noise: Noise, methods: Methods, run: Location) -> Floats:
    """x'_w, kept with the shards: made again after a kill, with other threads, its last digits could be others."""
    file = run / "contrasts.npy"
    if not file.exists():
        save_array(file, closed_form.contrast(words.vectors, noise, ridge=methods.closed_form.ridge))
    contrasts: Floats = np.load(file.local(), allow_pickle=False)
    return contrasts


def _share(
    run: Location,
    corpus: Part,
    words: Part,
    noise: Noise,
    methods: Methods,
    sharding: ShardConfig,
    previous: Part | None,
    only_new: bool,
    subset: npt.NDArray[np.uint64] | None,
) -> Shared:
    known = Words(words)
    matrix = _contrasts(known, noise, methods, run) if methods.is_closed_form else np.asarray(known.vectors)
    cdf = noise_cdf(known.counts, alpha=methods.embedding.alpha)
    return Shared(corpus, words, matrix, cdf, methods, sharding, previous, only_new, subset)


def _cut(methods: Methods, sharding: ShardConfig) -> int:
    return sharding.shard_words if methods.is_closed_form else sharding.shard_entities


def _ranges(shared: Shared) -> list[tuple[int, int]]:
    """Runs of entities of about equal work: words to gather, or, by the reference, entities."""
    reader, cut = EvidenceReader(shared.corpus, Words(shared.words)), _cut(shared.methods, shared.sharding)
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


def _train_shards(shared: Shared, run: Location) -> tuple[list[Location], float]:
    """The shards' files, and the most memory that a worker held, in GiB."""
    names = [(f"entities-{start:09d}-{end:09d}.npz", start, end) for start, end in _ranges(shared)]
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
    _write_shard(shard.file, embed_range(np.arange(shard.start, shard.end), shared))
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


def _write_shard(file: Location, result: ShardResult) -> None:
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


def _join(files: Sequence[Location], num_entities: int, dimension: int, folder: Path) -> int:
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


# -- summary


def _measures(kb: KnowledgeBase, part: Part, methods: Methods, validation: Validation | None) -> dict[str, Any]:
    """They take some seconds."""
    vectors, kinds = part.array("vectors"), part.array("evidence")
    found = _losses(kb, vectors, kinds, alpha=methods.embedding.alpha, gamma=methods.reference.gamma)
    if validation:
        score = round(validation.score(vectors[validation.entities]), 4)
        found |= {"validation": validation.name, "validation_score": score}
    return found


def _losses(
    kb: KnowledgeBase, vectors: Floats, kinds: npt.NDArray[np.int8], *, alpha: float, gamma: float
) -> dict[str, Any]:
    """Mean J of up to LOSS_ENTITIES entities on their pages' words, with their title's mean vector and with their own."""
    words = Words(kb.open("words"))
    with_page = np.flatnonzero(np.isin(kinds, (PAGE, PAGE_AND_LINKS)))
    if not len(with_page):
        return {}
    sample = with_page[np.unique(np.linspace(0, len(with_page) - 1, LOSS_ENTITIES).astype(np.int64))]
    evidence = EvidenceReader(kb.open("corpus"), words).read(sample)
    quantiles = (np.arange(LOSS_NEGATIVES) + 0.5) / LOSS_NEGATIVES
    pool = words.vectors[np.searchsorted(noise_cdf(words.counts, alpha=alpha), quantiles)]
    losses = []
    for row, entity in enumerate(sample):
        rows, counts = evidence.page.bag(row)
        start = unit_rows(words.vectors[evidence.title.bag(row)[0]].sum(axis=0, keepdims=True))[0]
        losses.append(
            [exact_objective(z, words.vectors[rows], counts, pool, gamma=gamma) for z in (start, vectors[entity])]
        )
    before, after = np.mean(losses, axis=0).round(5).tolist()
    return {"loss_before": before, "loss_after": after, "loss_entities": len(sample)}
